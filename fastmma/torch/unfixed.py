"""Operators whose results are not a GPU's: approximated functions, sums in another order, random numbers, torch's own products."""

from __future__ import annotations

from fastmma.torch.neutral import names

# products whose bits on a GPU nobody knows
_CONVOLUTION = "cuDNN's implicit products are not known"
_RECURRENT = "cuDNN's recurrent kernels are not known"
_FUSED = "fused attention is not known"
_SPARSE = "products of sparse tensors"
_SOLVER = "a GPU's library solves it in other steps"
_WITHIN = "its products are summed within a kernel of its own"
PRODUCTS = {
    **dict.fromkeys(("conv_tbc", "conv_tbc_backward", "_convolution", "conv_depthwise3d"), _CONVOLUTION),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _CONVOLUTION),
    **dict.fromkeys(("convolution_overrideable", "_conv_depthwise2d", "_slow_conv2d_forward", "_slow_conv2d_backward"), _CONVOLUTION),
    **dict.fromkeys(("slow_conv3d_forward", "slow_conv_dilated2d", "slow_conv_dilated3d", "slow_conv_transpose2d"), _CONVOLUTION),
    **dict.fromkeys(("slow_conv_transpose3d", "mkldnn_convolution", "cudnn_convolution", "cudnn_convolution_transpose"), _CONVOLUTION),
    **dict.fromkeys(("cudnn_convolution_relu", "cudnn_convolution_add_relu", "_nnpack_spatial_convolution"), _CONVOLUTION),
    **dict.fromkeys(("mkldnn_rnn_layer", "mkldnn_rnn_layer_backward", "_cudnn_rnn", "_cudnn_rnn_backward"), _RECURRENT),
    **dict.fromkeys(("_thnn_fused_gru_cell", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell_backward"), _RECURRENT),
    **dict.fromkeys(("_thnn_fused_lstm_cell_backward_impl", "quantized_lstm", "quantized_gru"), _RECURRENT),
    **dict.fromkeys(("dot", "vdot"), "cuBLAS's dot products are not known"),
    "addr": "an outer product has no sums",
    **dict.fromkeys(("bilinear", "_trilinear"), "a product of three is not known"),
    **dict.fromkeys(("cdist", "_cdist_forward", "_cdist_backward", "_euclidean_dist"), "distances by products are not known"),
    **dict.fromkeys(("_pdist_forward", "_pdist_backward"), "a GPU sums distances in another order"),
    "_weight_int8pack_mm": "torch's own kernel for weights of bytes",
    **dict.fromkeys(("_weight_int4pack_mm", "_weight_int4pack_mm_for_cpu"), "torch's own kernel for weights of 4 bits"),
    **dict.fromkeys(("_weight_int4pack_mm_with_scales_and_zeros", "_dyn_quant_matmul_4bit"), "torch's own kernel for weights of 4 bits"),
    "_mixed_dtypes_linear": "torch's own kernel for weights of integers",
    **dict.fromkeys(("_sparse_semi_structured_mm", "_sparse_semi_structured_addmm", "_sparse_semi_structured_linear"), _SPARSE),
    **dict.fromkeys(("_cslt_sparse_mm", "_sparse_addmm", "_sparse_sparse_matmul", "_sparse_mm_reduce_impl", "hspmm", "sspaddmm"), _SPARSE),
    **dict.fromkeys(("sparse_sampled_addmm", "_sparse_mm_reduce_impl_backward", "_spsolve"), _SPARSE),
    "_transformer_encoder_layer_fwd": "torch's fused layer; torch.backends.mha.set_fastpath_enabled(False) takes it apart",
    **dict.fromkeys(("_native_multi_head_attention", "_triton_multi_head_attention"), "torch's fused attention"),
    **dict.fromkeys(("_flash_attention_forward", "_flash_attention_backward", "_efficient_attention_forward"), _FUSED),
    **dict.fromkeys(("_efficient_attention_backward", "_cudnn_attention_forward", "_cudnn_attention_backward"), _FUSED),
    **dict.fromkeys(("_scaled_dot_product_fused_attention_overrideable", "_triton_scaled_dot_attention"), _FUSED),
    "_scaled_dot_product_fused_attention_overrideable_backward": _FUSED,
    **dict.fromkeys(("affine_grid_generator", "_compute_linear_combination", "_foreach_mm", "mkldnn_linear", "linear_backward"), _WITHIN),
    **dict.fromkeys(("matmul_backward", "linalg_householder_product", "ormqr", "segment_reduce", "linalg_cross"), _WITHIN),
    **dict.fromkeys(("linalg_matrix_exp", "linalg_pinv", "linalg_lstsq", "linalg_qr", "linalg_lu", "linalg_lu_factor_ex"), _SOLVER),
    **dict.fromkeys(("linalg_lu_solve", "linalg_ldl_factor_ex", "linalg_ldl_solve", "linalg_eig", "linalg_eigvals"), _SOLVER),
    **dict.fromkeys(("linalg_inv_ex", "linalg_cholesky_ex", "linalg_solve_triangular", "_linalg_det", "_linalg_eigh"), _SOLVER),
    **dict.fromkeys(("_linalg_eigvals", "_linalg_slogdet", "_linalg_solve_ex", "_linalg_svd", "cholesky", "cholesky_inverse"), _SOLVER),
    **dict.fromkeys(("cholesky_solve", "_cholesky_solve_helper", "geqrf", "triangular_solve", "lu_unpack"), _SOLVER),
    **dict.fromkeys(("_fft_c2c", "_fft_c2r", "_fft_r2c"), "cuFFT's transforms are not known"),
}
# composites that take other steps on a GPU: what they are made of on a CPU is at best a guess
RECURRENT = {
    **dict.fromkeys(("gru", "lstm", "rnn_tanh", "rnn_relu"), _RECURRENT),
    **dict.fromkeys(("gru_cell", "lstm_cell", "rnn_tanh_cell", "rnn_relu_cell"), "a GPU adds the biases of a cell after its products"),
}
# composites that are one kernel on a GPU: operators, and their overloads
FUSED = {"rms_norm": "default", "dropout": "default", "softmax": "int", "log_softmax": "int", "scaled_dot_product_attention": "default"}
MATH_ATTENTION = "_scaled_dot_product_attention_math"

APPROXIMATED = "a GPU approximates it in its own way"
ADDED = "a GPU sums in another order"
CONTRACTED = "a GPU multiplies and adds in one fma"
LISTS = "a GPU has kernels of its own for lists of tensors"
FUNCTIONS = names(
    """
    _log_softmax _log_softmax_backward_data _logcumsumexp _masked_softmax _masked_softmax_backward _safe_softmax _softmax
    _softmax_backward_data _upsample_bicubic2d_aa _upsample_bilinear2d_aa
    _weight_norm_interface _weight_norm_interface_backward bartlett_window binary_cross_entropy
    binary_cross_entropy_backward binary_cross_entropy_with_logits blackman_window celu dist elu elu_backward
    fake_quantize_per_channel_affine_cachemask fake_quantize_per_tensor_affine_cachemask fft_fftfreq fft_rfftfreq floor_divide gelu
    gelu_backward glu glu_backward glu_jvp grid_sampler_2d grid_sampler_2d_backward grid_sampler_3d grid_sampler_3d_backward
    hamming_window hann_window hardsigmoid hardsigmoid_backward hardswish hardswish_backward histc huber_loss huber_loss_backward
    kaiser_window linspace log_sigmoid_backward log_sigmoid_forward log_softmax logcumsumexp logit logspace mish polar
    quantize_per_tensor remainder rrelu_with_noise_backward smooth_l1_loss smooth_l1_loss_backward soft_margin_loss
    soft_margin_loss_backward softmax softplus softplus_backward softshrink_backward upsample_bicubic2d upsample_bicubic2d_backward
    upsample_bilinear2d upsample_bilinear2d_backward upsample_linear1d upsample_linear1d_backward upsample_nearest1d_backward
    upsample_nearest2d_backward upsample_nearest3d_backward upsample_trilinear3d upsample_trilinear3d_backward
    """
)
SUMS = names(
    """
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _adaptive_avg_pool3d_backward _batch_norm_no_update
    _batch_norm_with_update _batch_norm_with_update_functional _ctc_loss _ctc_loss_backward _cudnn_ctc_loss _embedding_bag
    _embedding_bag_backward _embedding_bag_dense_backward _embedding_bag_forward_only _embedding_bag_per_sample_weights_backward
    _fused_rms_norm _fused_rms_norm_backward _native_batch_norm_legit _native_batch_norm_legit_functional
    _native_batch_norm_legit_no_training _segment_reduce_backward _unsafe_masked_index_put_accumulate adaptive_avg_pool1d
    adaptive_avg_pool2d adaptive_max_pool2d_backward adaptive_max_pool3d_backward avg_pool1d avg_pool2d avg_pool2d_backward avg_pool3d
    avg_pool3d_backward batch_norm_backward bincount col2im cudnn_batch_norm cudnn_batch_norm_backward cumprod cumsum
    embedding_dense_backward embedding_renorm index_reduce linalg_vector_norm max_pool2d_with_indices_backward
    max_pool3d_with_indices_backward mean mse_loss_backward multi_margin_loss multi_margin_loss_backward multilabel_margin_loss_backward
    multilabel_margin_loss_forward native_batch_norm native_batch_norm_backward native_group_norm native_group_norm_backward
    native_layer_norm native_layer_norm_backward native_norm nll_loss2d_backward nll_loss2d_forward nll_loss_backward nll_loss_forward
    norm prod reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward renorm replication_pad1d_backward
    replication_pad2d_backward replication_pad3d_backward scatter_reduce std sum trace var
    """
)
STEPS = names(
    """
    _foreach_addcdiv _foreach_addcmul _foreach_lerp _fused_adagrad _fused_adam _fused_adamw _fused_sgd addcdiv addcmul lerp
    """
)
TIES = names("kthvalue median mode nanmedian")
RANDOM = names("_fused_dropout _masked_scale _philox_normal _philox_uniform rand rand_like randn randn_like randperm")
# of processes: what is moved, and what is summed
GATHERED = names(
    """
    _allgather_base_ _wrap_tensor_autograd all_gather_into_tensor all_gather_into_tensor_coalesced all_gather_into_tensor_out
    all_to_all_single allgather_ allgather_coalesced_ alltoall_ alltoall_base_ barrier broadcast broadcast_ gather_ recv_
    recv_any_source_ scatter_ send wait_tensor
    """
)
REDUCED = names(
    """
    _reduce_scatter_base_ all_reduce all_reduce_ all_reduce_coalesced all_reduce_coalesced_ allreduce_ allreduce_coalesced_ reduce_
    reduce_scatter_ reduce_scatter_tensor reduce_scatter_tensor_coalesced reduce_scatter_tensor_out
    """
)
