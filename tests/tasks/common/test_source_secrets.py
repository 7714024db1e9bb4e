"""What holds a secret stays out of the patch and of the list of files that differ, and the record says how much was
left out.
"""

from pathlib import Path

import pytest

from tasks.common import source_code
from tasks.common.source_code import CodeState, read_code_state
from tests import repository
from tests.tasks.common.sources import git, make


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with one commit."""
    return make(tmp_path / "a repository")


# Put together here, so that no tool takes this file for one with secrets.
TOKEN = "hf_" + "aB3" * 12
BY_NAME = (
    ".env",
    ".env.local",
    "prod.env",
    "conf/.envrc",
    "server.pem",
    "tls/host.key",
    "id_rsa",
    "keys/id_ed25519",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    "credentials.json",
    "Secrets.toml",
    "client_secret_1.json",
    "service-account.json",
    ".aws/config",
    ".ssh/known",
    ".kube/config",
    "kubeconfig.yaml",
    "token",
    "hf_token.txt",
    ".huggingface/stored",
    "wandb-api-key",
    "mirror/.dvc/config.local",
    "passwords.csv",
)
BY_CONTENT = {
    "notes.txt": f"the token is {TOKEN}.",
    "short.txt": "the token is hf_" + "SECRET123",
    "run.sh": "#!/bin/sh\nexport HF_TOKEN=hf_SECRET123\n",
    "reward.py": f'KEY = "sk-{"proj-" + "x9" * 15}"\n',
    "aws.yaml": "id: " + "AKIA" + "A1B2" * 4,
    "git.cfg": "url = https://me:" + "l0ng-enough@host/x",
    "hub.py": 'login("' + "ghp_" + "a1B2" * 9 + '")',
    "key.txt": "-----BEGIN OPENSSH " + "PRIVATE KEY-----\nabc\n",
    "client.json": '{"api_key": "' + "9f" * 12 + '"}',
}
OPEN = (
    "tokenizer.py",
    "tokenizer.json",
    "special_tokens_map.json",
    "end-token.yaml",
    "secrets.py",
    ".env.example",
    "environment.yaml",
    "key.py",
    "monkey.csv",
)


@pytest.mark.parametrize("tracked", [False, True])
def test_no_secret_is_in_the_patch_or_the_list_and_the_record_says_so(root: Path, tracked: bool) -> None:
    """New, or tracked and edited; by the name, or by the content; the other files are all there."""
    secrets = {**dict.fromkeys(BY_NAME, "the-secret-itself\n"), **BY_CONTENT}
    for path in (*secrets, *OPEN):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("before\n")
    if tracked:
        git(root, "add", "--force", ".")
        git(root, "commit", "--quiet", "--message", "all")
    for path, content in secrets.items():
        (root / path).write_text(content)
    for path in OPEN:
        (root / path).write_text("open\n")
    source = read_code_state(root)
    assert set(source.dirty.split()) == set(OPEN)
    for path in OPEN:
        assert path.encode() in source.patch
    for path, content in secrets.items():
        assert f" b/{path}\n".encode() not in source.patch, path
        assert content.strip().encode() not in source.patch, path
    assert source.note.startswith(f"{len(secrets)} files that differ are neither named nor kept")


def test_a_secret_that_was_committed_and_is_taken_out_is_not_in_the_patch(root: Path) -> None:
    (root / "conf.py").write_text(f'TOKEN = "{TOKEN}"\n')
    (root / ".env").write_text("x=the-secret-itself\n")
    git(root, "add", "--force", ".")
    git(root, "commit", "--quiet", "--message", "oh")
    (root / "conf.py").write_text("TOKEN = None\n")
    (root / ".env").unlink()
    (root / "a.py").write_text("2\n")
    source = read_code_state(root)
    assert source.dirty == "a.py"
    assert TOKEN.encode() not in source.patch
    assert b"the-secret-itself" not in source.patch


def test_where_only_a_secret_differs_the_code_is_the_commit_s(root: Path) -> None:
    (root / ".env").write_text("HF_TOKEN=hf_SECRET123\n")
    source = read_code_state(root)
    assert source == CodeState(git(root, "rev-parse", "HEAD").strip(), "no", None, source.note)
    assert source.note.startswith("1 file that differs is neither named nor kept")


@pytest.mark.tree
def test_no_file_of_the_project_s_own_is_taken_for_a_secret() -> None:
    folders = ("flows", "tasks", "rewards", "environments", "presets", "docs", "benchmarks", "deploy", "data")
    files = [file for folder in folders for file in repository.files(f"{folder}/**/*")]
    files += repository.files("*")
    assert len(files) > 500
    names = [str(file.relative_to(repository.ROOT)) for file in files]
    assert [name for name in names if source_code.is_secret_path(name)] == []
    assert [name for name in names if source_code.SECRET.search((repository.ROOT / name).read_bytes())] == []
