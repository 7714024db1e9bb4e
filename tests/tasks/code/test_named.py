"""What a name stands for: one definition, and not all of the module that has it."""

from tests.tasks.code.test_reachable_code import digests, edited


def test_a_name_that_an_import_time_statement_binds_does_not_stand_for_its_module():
    tree = edited("work/common/helpers.py", "UNUSED = 11", "UNUSED = 11\nKIND = print(LIMIT) or float")
    tree = edited("work/stage.py", "import twice", "import KIND, twice", tree)
    tree = edited("work/stage.py", "return twice", "return KIND(0) + twice", tree)
    assert digests(edited("work/common/helpers.py", "or float", "or int", tree)) != digests(tree)
    assert digests(edited("work/common/helpers.py", "3 * n", "4 * n", tree)) == digests(tree)


def test_a_module_that_starts_itself_as_a_program_does_not_stand_for_all_of_it():
    program = 'PROGRAM = "work.common.helpers"\ndef thrice'
    tree = edited("work/common/helpers.py", "def thrice", f'if __name__ == "__main__":\n    print(UNUSED)\n{program}')
    tree = edited("work/common/helpers.py", "return _add(n, n)", "return _add(n, PROGRAM)", tree)
    assert digests(edited("work/common/helpers.py", "UNUSED = 11", "UNUSED = 12", tree)) != digests(tree)
    assert digests(edited("work/common/helpers.py", "3 * n", "4 * n", tree)) == digests(tree)


def test_a_field_is_not_the_module_of_its_name():
    tree = edited("work/shapes.py", "class Square(Shape):", "class Square(Shape):\n    tables: int = 1")
    tree = edited("work/shapes.py", "from work.register", "from work import tables\nfrom work.register", tree)
    tree = edited("work/stage.py", " + stored.read()", "", tree)
    assert digests(edited("work/tables.py", "SIZE + 1", "SIZE + 2", tree)) == digests(tree)


def test_what_is_added_to_is_reached():
    tree = edited(
        "work/tables.py",
        "    from work import lazily\n",
        "    global SIZE\n    SIZE += 1\n    from work import lazily\n",
    )
    tree = edited("work/tables.py", "lazily.load(SIZE)", "lazily.load(1)", tree)
    assert digests(edited("work/tables.py", "SIZE = 3", "SIZE = 4", tree)) != digests(tree)
