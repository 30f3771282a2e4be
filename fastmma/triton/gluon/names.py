"""The names that Gluon has for the operations of the compiler."""

from __future__ import annotations

_NAMES = {
    "ttg.local_alloc": "allocate_shared_memory",
    "ttg.local_load": "smem.load",
    "ttg.local_store": "smem.store",
    "ttng.async_shared_store": "async_store",
    "ttng.cluster_barrier": "cluster.barrier",
    "ttng.clc_try_cancel": "clc.try_cancel",
    "ttng.clc_load_result": "clc.load_result",
    "ttg.local_gather": "smem.gather",
    "ttg.local_scatter": "smem.scatter",
    "ttg.memdesc_index": "smem.index",
    "ttg.memdesc_subslice": "smem.slice",
    "ttg.memdesc_trans": "smem.permute",
    "ttg.memdesc_reshape": "smem.reshape",
    "ttg.memdesc_reinterpret": "smem.reinterpret",
    "ttg.async_copy_global_to_local": "async_copy.async_load",
    "ttg.async_copy_mbarrier_arrive": "async_copy.mbarrier_arrive",
    "ttg.async_commit_group": "async_copy.commit_group",
    "ttg.async_wait": "async_copy.wait_group",
    "ttng.async_copy_mbarrier_arrive": "async_copy.mbarrier_arrive",
    "ttng.async_tma_copy_global_to_local": "tma.async_load",
    "ttng.async_tma_copy_local_to_global": "tma.async_store",
    "ttng.async_tma_reduce": "tma.async_atomic",
    "ttng.async_tma_gather": "tma.async_gather",
    "ttng.async_tma_scatter": "tma.async_scatter",
    "ttng.async_tma_store_wait": "tma.store_wait",
    "ttng.tensormap_create": "tma.make_tensor_descriptor",
    "ttng.init_barrier": "mbarrier.init",
    "ttng.inval_barrier": "mbarrier.invalidate",
    "ttng.barrier_expect": "mbarrier.expect",
    "ttng.arrive_barrier": "mbarrier.arrive",
    "ttng.wait_barrier": "mbarrier.wait",
    "ttng.fence_async_shared": "fence_async_shared",
    "ttng.warp_group_dot": "warpgroup_mma",
    "ttng.warp_group_dot_wait": "warpgroup_mma_wait",
    "ttng.tmem_alloc": "allocate_tensor_memory",
    "ttng.tmem_load": "tmem.load",
    "ttng.tmem_store": "tmem.store",
    "ttng.tmem_copy": "tcgen05_copy",
    "ttng.tmem_subslice": "tmem.slice",
    "ttng.tc_gen5_mma": "tcgen05_mma",
    "ttng.tc_gen5_mma_scaled": "tcgen05_mma_scaled",
    "ttng.tc_gen5_commit": "tcgen05_commit",
    "ttg.warp_specialize": "warp_specialize",
    "ttg.convert_layout": "convert_layout",
    "tt.dot": "mma_v2",
    "arith.addf": "+",
    "arith.subf": "-",
    "arith.mulf": "*",
    "arith.divf": "/",
    "arith.remf": "%",
}


def find_name(operation: str) -> str:
    """Return the name by which reports and errors call an operation.

    Examples
    --------
    >>> find_name("ttng.wait_barrier"), find_name("math.exp2")
    ('mbarrier.wait', 'exp2')
    """
    return _NAMES.get(operation) or operation.partition(".")[2]
