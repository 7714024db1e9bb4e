"""Several ranks as threads of one process, for tests of what they say to each other; torch tests its own code so."""

import threading

import torch
from torch import distributed
from torch.testing._internal.distributed import multi_threaded_pg as threaded


def in_ranks(count, function):
    """What `function(rank)` returns in each of `count` ranks; the first error of a rank is raised here."""
    found, errors = [None] * count, []

    def rank(number, store):
        try:
            distributed.init_process_group("threaded", rank=number, world_size=count, store=store)
            found[number] = function(number)
        except BaseException as error:
            errors.append(error)
            threaded.ProcessLocalGroup.exception_handle(error)
        finally:
            distributed.destroy_process_group()

    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    threaded._install_threaded_pg()
    try:
        store = distributed.HashStore()
        ranks = [threading.Thread(target=rank, args=(number, store)) for number in range(count)]
        for thread in ranks:
            thread.start()
        for thread in ranks:
            thread.join()
    finally:
        threaded._uninstall_threaded_pg()
        torch._C._distributed_c10d._set_thread_isolation_mode(False)
        threaded.ProcessLocalGroup.reset()
    for error in errors:
        raise error
    return found
