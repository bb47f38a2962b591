"""The names that TensorFlow 1 has, by namespace: to tell a missing name from a mistyped one.

Read off TensorFlow's own public API (version 1 compatibility of 2.21; for `tf.contrib`, what 1.15
documents).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["INSTEAD", "TF1", "missing"]

_TEXT = {
    "": """
        AUTO_REUSE AggregationMethod Assert AttrValue COMPILER_VERSION CXX11_ABI_FLAG
        CXX_VERSION ConditionalAccumulator ConditionalAccumulatorBase ConfigProto
        CriticalSection DType DeviceSpec Dimension Event FIFOQueue FixedLenFeature
        FixedLenSequenceFeature FixedLengthRecordReader GIT_VERSION GPUOptions GRAPH_DEF_VERSION
        GRAPH_DEF_VERSION_MIN_CONSUMER GRAPH_DEF_VERSION_MIN_PRODUCER GradientTape Graph
        GraphDef GraphKeys GraphOptions HistogramProto IdentityReader IndexedSlices
        IndexedSlicesSpec InteractiveSession LMDBReader LogMessage MONOLITHIC_BUILD MetaGraphDef
        Module NameAttrList NoGradient NodeDef NoneTensorSpec NotDifferentiable OpError
        Operation OptimizerOptions OptionalSpec PaddingFIFOQueue Print PriorityQueue
        QUANTIZED_DTYPES QueueBase RaggedTensor RaggedTensorSpec RandomShuffleQueue ReaderBase
        RegisterGradient RunMetadata RunOptions Session SessionLog SparseConditionalAccumulator
        SparseFeature SparseTensor SparseTensorSpec SparseTensorValue Summary SummaryMetadata
        TFRecordReader Tensor TensorArray TensorArraySpec TensorInfo TensorShape TensorSpec
        TextLineReader TypeSpec UnconnectedGradients VERSION VarLenFeature Variable
        VariableAggregation VariableScope VariableSynchronization WholeFileReader abs
        accumulate_n acos acosh add add_check_numerics_ops add_n add_to_collection
        add_to_collections all_variables angle approx_top_k arg_max arg_min argmax argmin
        argsort as_dtype as_string asin asinh assert_equal assert_greater assert_greater_equal
        assert_integer assert_less assert_less_equal assert_near assert_negative
        assert_non_negative assert_non_positive assert_none_equal assert_positive
        assert_proper_iterable assert_rank assert_rank_at_least assert_rank_in
        assert_same_float_dtype assert_scalar assert_type assert_variables_initialized assign
        assign_add assign_sub atan atan2 atanh batch_gather batch_scatter_update batch_to_space
        batch_to_space_nd betainc bfloat16 bincount bitcast bool boolean_mask
        broadcast_dynamic_shape broadcast_static_shape broadcast_to case cast ceil
        check_numerics check_pinned cholesky cholesky_solve clip_by_average_norm
        clip_by_global_norm clip_by_norm clip_by_value colocate_with complex complex128
        complex64 concat cond confusion_matrix conj constant constant_initializer container
        control_dependencies control_flow_v2_enabled conv conv2d_backprop_filter_v2
        conv2d_backprop_input_v2 convert_to_tensor convert_to_tensor_or_indexed_slices
        convert_to_tensor_or_sparse_tensor cos cosh count_nonzero count_up_to
        create_partitioned_variables cross cumprod cumsum custom_gradient decode_base64
        decode_compressed decode_csv decode_json_example decode_raw delete_session_tensor
        depth_to_space dequantize deserialize_many_sparse device diag diag_part digamma
        dimension_at_index dimension_value disable_control_flow_v2 disable_eager_execution
        disable_resource_variables disable_tensor_equality disable_v2_behavior
        disable_v2_tensorshape div div_no_nan divide double dynamic_partition dynamic_stitch
        edit_distance einsum enable_control_flow_v2 enable_eager_execution
        enable_resource_variables enable_tensor_equality enable_v2_behavior
        enable_v2_tensorshape encode_base64 ensure_shape equal erf erfc executing_eagerly
        executing_eagerly_outside_functions exp expand_dims expm1 extract_image_patches
        extract_volume_patches eye fake_quant_with_min_max_args
        fake_quant_with_min_max_args_gradient fake_quant_with_min_max_vars
        fake_quant_with_min_max_vars_gradient fake_quant_with_min_max_vars_per_channel
        fake_quant_with_min_max_vars_per_channel_gradient fft fft2d fft3d fftnd fill fingerprint
        fixed_size_partitioner float16 float32 float64 floor floor_div floordiv floormod foldl
        foldr function gather gather_nd get_collection get_collection_ref get_default_graph
        get_default_session get_local_variable get_logger get_seed get_session_handle
        get_session_tensor get_static_value get_variable get_variable_scope global_norm
        global_variables global_variables_initializer glorot_normal_initializer
        glorot_uniform_initializer grad_pass_through gradients greater greater_equal group
        guarantee_const half hessians histogram_fixed_width histogram_fixed_width_bins identity
        identity_n ifft ifft2d ifft3d ifftnd igamma igammac imag import_graph_def init_scope
        initialize_all_tables initialize_all_variables initialize_local_variables
        initialize_variables int16 int32 int64 int8 invert_permutation irfftnd is_finite is_inf
        is_nan is_non_decreasing is_numeric_tensor is_strictly_increasing is_symbolic_tensor
        is_tensor is_variable_initialized lbeta less less_equal lgamma lin_space linspace
        load_file_system_library load_library load_op_library local_variables
        local_variables_initializer log log1p log_sigmoid logical_and logical_not logical_or
        logical_xor make_ndarray make_template make_tensor_proto map_fn matching_files matmul
        matrix_band_part matrix_determinant matrix_diag matrix_diag_part matrix_inverse
        matrix_set_diag matrix_solve matrix_solve_ls matrix_square_root matrix_transpose
        matrix_triangular_solve maximum meshgrid min_max_variable_partitioner minimum mod
        model_variables moving_average_variables multinomial multiply name_scope negative
        newaxis no_gradient no_op no_regularizer nondifferentiable_batch_function norm not_equal
        numpy_function one_hot ones ones_initializer ones_like op_scope orthogonal_initializer
        pad parallel_stack parse_example parse_single_example parse_single_sequence_example
        parse_tensor placeholder placeholder_with_default polygamma pow print py_func
        py_function qint16 qint32 qint8 qr quantize quantize_v2 quantized_concat quint16 quint8
        ragged_fill_empty_rows ragged_fill_empty_rows_grad random_crop random_gamma
        random_index_shuffle random_normal random_normal_initializer random_poisson
        random_shuffle random_uniform random_uniform_initializer range rank read_file real
        realdiv reciprocal recompute_grad reduce_all reduce_any reduce_join reduce_logsumexp
        reduce_max reduce_mean reduce_min reduce_prod reduce_sum regex_replace
        register_tensor_conversion_function repeat report_uninitialized_variables
        required_space_to_batch_paddings reset_default_graph reshape resource
        resource_variables_enabled reverse reverse_sequence reverse_v2 rfftnd rint roll round
        rsqrt saturate_cast scalar_mul scan scatter_add scatter_div scatter_max scatter_min
        scatter_mul scatter_nd scatter_nd_add scatter_nd_sub scatter_nd_update scatter_sub
        scatter_update searchsorted segment_max segment_mean segment_min segment_prod
        segment_sum self_adjoint_eig self_adjoint_eigvals sequence_mask serialize_many_sparse
        serialize_sparse serialize_tensor set_random_seed setdiff1d shape shape_n sigmoid sign
        sin sinh size slice sort space_to_batch space_to_batch_nd space_to_depth sparse_add
        sparse_concat sparse_fill_empty_rows sparse_mask sparse_matmul sparse_maximum
        sparse_merge sparse_minimum sparse_placeholder sparse_reduce_max
        sparse_reduce_max_sparse sparse_reduce_sum sparse_reduce_sum_sparse sparse_reorder
        sparse_reset_shape sparse_reshape sparse_retain sparse_segment_mean
        sparse_segment_sqrt_n sparse_segment_sum sparse_slice sparse_softmax sparse_split
        sparse_tensor_dense_matmul sparse_tensor_to_dense sparse_to_dense sparse_to_indicator
        sparse_transpose split sqrt square squared_difference squeeze stack stop_gradient
        strided_slice string string_join string_split string_strip string_to_hash_bucket
        string_to_hash_bucket_fast string_to_hash_bucket_strong string_to_number substr subtract
        svd switch_case tables_initializer tan tanh tensor_scatter_add tensor_scatter_nd_add
        tensor_scatter_nd_max tensor_scatter_nd_min tensor_scatter_nd_sub
        tensor_scatter_nd_update tensor_scatter_sub tensor_scatter_update tensordot tile
        timestamp to_bfloat16 to_complex128 to_complex64 to_double to_float to_int32 to_int64
        trace trainable_variables transpose truediv truncated_normal
        truncated_normal_initializer truncatediv truncatemod tuple type_spec_from_value uint16
        uint32 uint64 uint8 uniform_unit_scaling_initializer unique unique_with_counts
        unravel_index unsorted_segment_max unsorted_segment_mean unsorted_segment_min
        unsorted_segment_prod unsorted_segment_sqrt_n unsorted_segment_sum unstack
        variable_axis_size_partitioner variable_creator_scope variable_op_scope variable_scope
        variables_initializer variance_scaling_initializer variant vectorized_map
        verify_tensor_all_finite where where_v2 while_loop wrap_function write_file zeros
        zeros_initializer zeros_like zeta

        app audio autograph bitwise compat config contrib data debugging distribute
        distributions dtypes errors estimator experimental feature_column flags gfile graph_util
        image initializers io keras layers linalg lite logging lookup losses manip math metrics
        mixed_precision mlir nest nn profiler python_io quantization queue ragged random raw_ops
        resource_loader saved_model sets signal sparse spectral strings summary sysconfig test
        tpu train types user_ops version xla
    """,
    "train": """
        AdadeltaOptimizer AdagradDAOptimizer AdagradOptimizer AdamOptimizer BytesList Checkpoint
        CheckpointManager CheckpointOptions CheckpointSaverHook CheckpointSaverListener
        ChiefSessionCreator ClusterDef ClusterSpec Coordinator Example ExponentialMovingAverage
        Feature FeatureList FeatureLists Features FeedFnHook FinalOpsHook FloatList
        FtrlOptimizer GlobalStepWaiterHook GradientDescentOptimizer Int64List JobDef
        LoggingTensorHook LooperThread MomentumOptimizer MonitoredSession
        MonitoredTrainingSession NanLossDuringTrainingError NanTensorHook NewCheckpointReader
        Optimizer ProfilerHook ProximalAdagradOptimizer ProximalGradientDescentOptimizer
        QueueRunner RMSPropOptimizer Saver SaverDef Scaffold SecondOrStepTimer SequenceExample
        Server ServerDef SessionCreator SessionManager SessionRunArgs SessionRunContext
        SessionRunHook SessionRunValues SingularMonitoredSession StepCounterHook StopAtStepHook
        SummarySaverHook Supervisor SyncReplicasOptimizer VocabInfo WorkerSessionCreator
        add_queue_runner assert_global_step basic_train_loop batch batch_join checkpoint_exists
        checkpoints_iterator cosine_decay cosine_decay_restarts create_global_step
        do_quantize_training_on_graphdef exponential_decay export_meta_graph
        generate_checkpoint_state_proto get_checkpoint_mtimes get_checkpoint_state
        get_global_step get_or_create_global_step global_step import_meta_graph
        init_from_checkpoint input_producer inverse_time_decay latest_checkpoint limit_epochs
        linear_cosine_decay list_variables load_checkpoint load_variable match_filenames_once
        maybe_batch maybe_batch_join maybe_shuffle_batch maybe_shuffle_batch_join
        natural_exp_decay noisy_linear_cosine_decay piecewise_constant piecewise_constant_decay
        polynomial_decay range_input_producer remove_checkpoint replica_device_setter
        sdca_fprint sdca_optimizer sdca_shrink_l1 shuffle_batch shuffle_batch_join
        slice_input_producer start_queue_runners string_input_producer summary_iterator
        update_checkpoint_state warm_start write_graph
    """,
    "nn": """
        all_candidate_sampler approx_max_k approx_min_k atrous_conv2d atrous_conv2d_transpose
        avg_pool avg_pool1d avg_pool2d avg_pool3d avg_pool_v2
        batch_norm_with_global_normalization batch_normalization bias_add
        bidirectional_dynamic_rnn collapse_repeated compute_accidental_hits compute_average_loss
        conv1d conv1d_transpose conv2d conv2d_backprop_filter conv2d_backprop_input
        conv2d_transpose conv3d conv3d_backprop_filter conv3d_backprop_filter_v2
        conv3d_transpose conv_transpose convolution crelu ctc_beam_search_decoder
        ctc_beam_search_decoder_v2 ctc_greedy_decoder ctc_loss ctc_loss_v2 ctc_unique_labels
        depth_to_space depthwise_conv2d depthwise_conv2d_backprop_filter
        depthwise_conv2d_backprop_input depthwise_conv2d_native
        depthwise_conv2d_native_backprop_filter depthwise_conv2d_native_backprop_input
        dilation2d dropout dynamic_rnn elu embedding_lookup embedding_lookup_sparse erosion2d
        fixed_unigram_candidate_sampler fractional_avg_pool fractional_max_pool fused_batch_norm
        in_top_k l2_loss l2_normalize leaky_relu learned_unigram_candidate_sampler
        local_response_normalization log_poisson_loss log_softmax log_uniform_candidate_sampler
        lrn max_pool max_pool1d max_pool2d max_pool3d max_pool_v2 max_pool_with_argmax moments
        nce_loss normalize_moments pool quantized_avg_pool quantized_conv2d quantized_max_pool
        quantized_relu_x raw_rnn relu relu6 relu_layer safe_embedding_lookup_sparse
        sampled_softmax_loss scale_regularization_loss selu separable_conv2d sigmoid
        sigmoid_cross_entropy_with_logits silu softmax softmax_cross_entropy_with_logits
        softmax_cross_entropy_with_logits_v2 softplus softsign space_to_batch space_to_depth
        sparse_softmax_cross_entropy_with_logits static_bidirectional_rnn static_rnn
        static_state_saving_rnn sufficient_statistics swish tanh top_k uniform_candidate_sampler
        weighted_cross_entropy_with_logits weighted_moments with_space_to_batch xw_plus_b
        zero_fraction
    """,
    "losses": """
        Reduction absolute_difference add_loss compute_weighted_loss cosine_distance get_losses
        get_regularization_loss get_regularization_losses get_total_loss hinge_loss huber_loss
        log_loss mean_pairwise_squared_error mean_squared_error sigmoid_cross_entropy
        softmax_cross_entropy sparse_softmax_cross_entropy
    """,
    "layers": """
        AveragePooling1D AveragePooling2D AveragePooling3D BatchNormalization Conv1D Conv2D
        Conv2DTranspose Conv3D Conv3DTranspose Dense Dropout Flatten InputSpec Layer
        MaxPooling1D MaxPooling2D MaxPooling3D SeparableConv1D SeparableConv2D average_pooling1d
        average_pooling2d average_pooling3d batch_normalization conv1d conv2d conv2d_transpose
        conv3d conv3d_transpose dense dropout flatten max_pooling1d max_pooling2d max_pooling3d
        separable_conv1d separable_conv2d
    """,
    "summary": """
        Event FileWriter FileWriterCache SessionLog Summary SummaryDescription TaggedRunMetadata
        audio get_summary_description histogram image initialize merge
        merge_all scalar tensor_summary text
    """,
    "metrics": """
        accuracy auc average_precision_at_k false_negatives false_negatives_at_thresholds
        false_positives false_positives_at_thresholds mean mean_absolute_error
        mean_cosine_distance mean_iou mean_per_class_accuracy mean_relative_error
        mean_squared_error mean_tensor percentage_below precision precision_at_k
        precision_at_thresholds precision_at_top_k recall recall_at_k recall_at_thresholds
        recall_at_top_k root_mean_squared_error sensitivity_at_specificity
        sparse_average_precision_at_k sparse_precision_at_k specificity_at_sensitivity
        true_negatives true_negatives_at_thresholds true_positives true_positives_at_thresholds
    """,
    "contrib": """
        all_reduce autograph batching bayesflow bigtable checkpoint cloud cluster_resolver
        coder compiler constrained_optimization copy_graph crf cudnn_rnn data decision_trees
        deprecated distribute distributions eager estimator factorization feature_column ffmpeg
        framework fused_conv gan graph_editor grid_rnn hadoop hooks image input_pipeline
        integrate keras kernel_methods labeled_tensor layers learn legacy_seq2seq
        linear_optimizer lookup losses memory_stats meta_graph_transform metrics mixed_precision
        model_pruning nccl nn opt optimizer_v2 periodic_resample predictor proto quantization
        quantize receptive_field recurrent reduce_slice_ops remote_fused_graph resampler rnn rpc
        saved_model seq2seq session_bundle signal slim solvers sparsemax specs staging
        stat_summarizer stateless summary tensor_forest tensorboard tensorrt testing tfprof
        timeseries tpu training util
    """,
    "contrib.framework": """
        BoundedTensorSpec CriticalSection TensorSpec VariableDeviceChooser add_arg_scope
        add_model_variable arg_scope arg_scope_func_key arg_scoped_arguments argsort
        assert_global_step assert_or_get_global_step assert_same_float_dtype assert_scalar
        assert_scalar_int assign_from_checkpoint assign_from_checkpoint_fn assign_from_values
        assign_from_values_fn broadcast_to convert_to_tensor_or_sparse_tensor create_global_step
        current_arg_scope deprecated deprecated_arg_values deprecated_args filter_variables
        fuse_op get_global_step get_graph_from_inputs get_local_variables get_model_variables
        get_name_scope get_or_create_global_step get_placeholders get_trainable_variables
        get_unique_variable get_variable_full_name get_variables get_variables_by_name
        get_variables_by_suffix get_variables_to_restore global_variable has_arg_scope
        init_from_checkpoint is_tensor list_variables load_and_remap_matrix
        load_and_remap_matrix_initializer load_checkpoint load_embedding_initializer
        load_linear_multiclass_bias_initializer load_variable load_variable_slot_initializer
        local_variable model_variable nest prepend_name_scope py_func reduce_sum_n
        remove_squeezable_dimensions smart_case smart_cond smart_constant_value sort
        strip_name_scope variable with_same_shape with_shape zero_initializer
    """,
    "math": """
        abs accumulate_n acos acosh add add_n angle approx_max_k approx_min_k argmax argmin asin
        asinh atan atan2 atanh bessel_i0 bessel_i0e bessel_i1 bessel_i1e betainc bincount ceil
        confusion_matrix conj cos cosh count_nonzero cumprod cumsum cumulative_logsumexp digamma
        divide divide_no_nan equal erf erfc erfcinv erfinv exp expm1 floor floordiv floormod
        greater greater_equal igamma igammac imag in_top_k invert_permutation is_finite is_inf
        is_nan is_non_decreasing is_strictly_increasing l2_normalize lbeta less less_equal
        lgamma log log1p log_sigmoid log_softmax logical_and logical_not logical_or logical_xor
        maximum minimum mod multiply multiply_no_nan ndtri negative nextafter not_equal
        polygamma polyval pow real reciprocal reciprocal_no_nan reduce_all reduce_any
        reduce_euclidean_norm reduce_logsumexp reduce_max reduce_mean reduce_min reduce_prod
        reduce_std reduce_sum reduce_variance rint round rsqrt scalar_mul segment_max
        segment_mean segment_min segment_prod segment_sum sigmoid sign sin sinh sobol_sample
        softmax softplus softsign sqrt square squared_difference subtract tan tanh top_k truediv
        unsorted_segment_max unsorted_segment_mean unsorted_segment_min unsorted_segment_prod
        unsorted_segment_sqrt_n unsorted_segment_sum xdivy xlog1py xlogy zero_fraction zeta
    """,
    "random": """
        Algorithm Generator all_candidate_sampler categorical create_rng_state
        fixed_unigram_candidate_sampler fold_in gamma get_global_generator get_seed
        learned_unigram_candidate_sampler log_uniform_candidate_sampler multinomial normal
        poisson set_global_generator set_random_seed shuffle split stateless_binomial
        stateless_categorical stateless_gamma stateless_multinomial stateless_normal
        stateless_parameterized_truncated_normal stateless_poisson stateless_truncated_normal
        stateless_uniform truncated_normal uniform uniform_candidate_sampler
    """,
    "contrib.layers": """
        GDN OPTIMIZER_CLS_NAMES OPTIMIZER_SUMMARIES RevBlock adaptive_clipping_fn
        apply_regularization avg_pool2d avg_pool3d batch_norm bias_add bow_encoder
        bucketized_column check_feature_columns conv1d conv2d conv2d_in_plane conv2d_transpose
        conv3d conv3d_transpose convolution convolution1d convolution2d convolution2d_in_plane
        convolution2d_transpose convolution3d convolution3d_transpose
        create_feature_spec_for_parsing crossed_column dense_to_sparse dropout elu
        embed_sequence embedding_column embedding_lookup_unique feature_column flatten
        fully_connected gdn group_norm images_to_sequence infer_real_valued_columns
        input_from_feature_columns instance_norm joint_weighted_sum_from_feature_columns
        l1_l2_regularizer l1_regularizer l2_regularizer layer_norm legacy_fully_connected
        legacy_linear legacy_relu linear make_place_holder_tensors_for_base_features max_pool2d
        max_pool3d maxout multi_class_target one_hot_column one_hot_encoding optimize_loss
        parse_feature_columns_from_examples parse_feature_columns_from_sequence_examples
        poincare_normalize pool real_valued_column recompute_grad regression_target relu relu6
        repeat rev_block safe_embedding_lookup_sparse scale_gradient scattered_embedding_column
        separable_conv2d separable_convolution2d sequence_input_from_feature_columns
        sequence_to_images shared_embedding_columns softmax sparse_column_with_hash_bucket
        sparse_column_with_integerized_feature sparse_column_with_keys
        sparse_column_with_vocabulary_file spatial_softmax stack sum_regularizer
        summarize_activation summarize_activations summarize_biases summarize_collection
        summarize_tensor summarize_tensors summarize_variables summarize_weights unit_norm
        variance_scaling_initializer weighted_sparse_column weighted_sum_from_feature_columns
        xavier_initializer xavier_initializer_conv2d
    """,
    "contrib.losses": """
        absolute_difference add_loss compute_weighted_loss cosine_distance get_losses
        get_regularization_losses get_total_loss hinge_loss log_loss
        mean_pairwise_squared_error mean_squared_error sigmoid_cross_entropy
        softmax_cross_entropy sparse_softmax_cross_entropy
    """,
    "contrib.mixed_precision": """
        ExponentialUpdateLossScaleManager FixedLossScaleManager LossScaleManager
        LossScaleOptimizer
    """,
    "contrib.opt": """
        AGNCustomGetter AGNOptimizer AdaMaxOptimizer AdamGSOptimizer AdamWOptimizer
        AddSignOptimizer DecoupledWeightDecayExtension DropStaleGradientOptimizer
        ElasticAverageCustomGetter ElasticAverageOptimizer ExternalOptimizerInterface
        GGTOptimizer LARSOptimizer LazyAdamGSOptimizer LazyAdamOptimizer
        ModelAverageCustomGetter ModelAverageOptimizer MomentumWOptimizer
        MovingAverageOptimizer MultitaskOptimizerWrapper NadamOptimizer PowerSignOptimizer
        RegAdagradOptimizer ScipyOptimizerInterface ShampooOptimizer
        VariableClippingOptimizer clip_gradients_by_global_norm
        extend_with_decoupled_weight_decay
    """,
    "contrib.slim": """
        arg_scope data dataset evaluation layers learning losses metrics model_analyzer nets queues
        summaries tfexample_decoder variables
    """,
    "contrib.training": """
        FailureTolerator FeedingQueueRunner GreedyLoadBalancingStrategy HParams
        NextQueuedSequenceBatch RandomStrategy SequenceQueueingStateSaver StopAfterNEvalsHook
        SummaryAtEndHook add_gradients_summaries batch_sequences_with_states bucket
        bucket_by_sequence_length byte_size_load_fn checkpoints_iterator clip_gradient_norms
        clip_gradient_norms_fn create_train_op evaluate_once evaluate_repeatedly
        get_or_create_eval_step multiply_gradients parse_values rejection_sample
        resample_at_rate sgdr_decay stratified_sample train wait_for_new_checkpoint
        weighted_resample
    """,
}
TF1: dict[str, frozenset[str]] = {key: frozenset(text.split()) for key, text in _TEXT.items()}
"""TF1's names by namespace; "" is the top level."""


_INSTEAD = {
    "feed arrays, or give batches to optkit.fit; see optkit.batches": """
        FIFOQueue PaddingFIFOQueue RandomShuffleQueue TFRecordReader TextLineReader
        WholeFileReader contrib.data data parse_single_example python_io train.QueueRunner
        train.add_queue_runner train.batch train.batch_join train.input_producer
        train.range_input_producer train.shuffle_batch train.shuffle_batch_join
        train.slice_input_producer train.start_queue_runners train.string_input_producer
    """,
    "see optkit.fit and optkit.train.MonitoredTrainingSession": """
        contrib.estimator contrib.learn estimator train.Supervisor train.basic_train_loop
    """,
    "see optkit.layers": "contrib.keras keras",
    "see optkit.metrics": "contrib.metrics contrib.slim.metrics",
    "see optkit.summary": "contrib.summary",
    "see optkit.get_backend": "test",
    "feed numbers of rows to optkit.nn.embedding_lookup": """
        SparseTensor nn.embedding_lookup_sparse sparse_placeholder sparse_tensor_dense_matmul
    """,
    "build the graph again and restore its variables with optkit.train.Saver": """
        saved_model train.export_meta_graph train.import_meta_graph
    """,
    "training is on one machine": """
        distribute train.ClusterSpec train.Server train.SyncReplicasOptimizer
        train.replica_device_setter
    """,
}
INSTEAD = {name: advice for advice, text in _INSTEAD.items() for name in text.split()}
"""What to do without a name of TF1 that is not there."""


def missing(
    namespace: str, here: Iterable[str], lazy: Mapping[str, str] | None = None
) -> Callable[[str], Any]:
    """A module's `__getattr__`: an AttributeError that says what a missing name is.

    Args:
        namespace: the module's key in TF1.
        here: the names the module has.
        lazy: those of them that another module has, imported at first use: its name.
    """
    names = list(here)

    def __getattr__(name: str) -> Any:  # noqa: N807 - what modules call it
        if lazy and name in lazy:
            return getattr(import_module(lazy[name]), name)
        full = f"optkit.{namespace}" if namespace else "optkit"
        # Spelt right, only a near relation is of interest, like max_pool for max_pool_v2.
        known = name in TF1[namespace]
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.8 if known else 0.6)
        hint = f"; the nearest here: {', '.join(near)}" if near else ""
        if known:
            instead = INSTEAD.get(f"{namespace}.{name}".lstrip("."))
            hint = f"; {instead}" if instead else hint
            message = f"{full} has no {name!r}, which TensorFlow 1 has{hint}"
        else:
            message = f"{full} has no attribute {name!r}{hint}"
        # Without the module, Python adds no guess of its own.
        raise AttributeError(message, name=name, obj=None)

    return __getattr__
