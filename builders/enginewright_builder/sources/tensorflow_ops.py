"""Operators that functions of a SavedModel may have. Loading and calling such functions is to run a program, and other
operators of TensorFlow read and write files, open connections or call Python. These compute with tensors and nothing
else; most have a counterpart in ONNX."""

from __future__ import annotations

_TENSORS = """
    Abs Acos Acosh Add AddN AddV2 AdjustContrastv2 AdjustHue AdjustSaturation All Any ApproximateEqual ArgMax ArgMin
    Asin Asinh Assert Atan Atan2 Atanh AvgPool AvgPool3D BatchMatMul BatchMatMulV2 BatchMatMulV3 BatchToSpace
    BatchToSpaceND BiasAdd BiasAddV1 Bincount Bitcast BitwiseAnd BitwiseOr BitwiseXor BroadcastArgs BroadcastTo
    Bucketize Cast Ceil CheckNumerics Cholesky ClipByValue CombinedNonMaxSuppression Complex ComplexAbs Concat
    ConcatOffset ConcatV2 Conj ConjugateTranspose Const Conv2D Conv2DBackpropInput Conv3D Conv3DBackpropInputV2 Cos
    Cosh CropAndResize Cross CTCGreedyDecoder Cumprod Cumsum DataFormatDimMap DataFormatVecPermute DenseBincount
    DenseToDenseSetOperation DepthToSpace DepthwiseConv2dNative Dequantize Diag DiagPart Digamma Dilation2D Div
    DivNoNan DynamicPartition DynamicStitch Einsum Elu EmptyTensorList EnsureShape Equal Erf Erfc Erfinv
    EuclideanNorm Exp ExpandDims Expm1 ExtractImagePatches FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars
    FakeQuantWithMinMaxVarsPerChannel FFT FFT2D FFT3D Fill Floor FloorDiv FloorMod FusedBatchNorm FusedBatchNormV2
    FusedBatchNormV3 Gather GatherNd GatherV2 Greater GreaterEqual HSVToRGB Identity IdentityN IFFT IFFT2D IFFT3D
    Imag ImageProjectiveTransformV2 ImageProjectiveTransformV3 Inv Invert InvertPermutation IRFFT IRFFT2D IRFFT3D
    IsFinite IsInf IsNan L2Loss LeakyRelu LeftShift Less LessEqual Lgamma LinSpace ListDiff Log Log1p LogicalAnd
    LogicalNot LogicalOr LogSoftmax LowerBound LRN MatMul MatrixBandPart MatrixDeterminant MatrixDiag MatrixDiagPart
    MatrixDiagPartV2 MatrixDiagPartV3 MatrixDiagV2 MatrixDiagV3 MatrixInverse MatrixSetDiag MatrixSetDiagV2
    MatrixSetDiagV3 MatrixSolve Max Maximum MaxPool MaxPool3D MaxPoolV2 MaxPoolWithArgmax Mean Min Minimum MirrorPad
    Mod Mul MulNoNan Multinomial Neg NonMaxSuppressionV2 NonMaxSuppressionV3 NonMaxSuppressionV4 NonMaxSuppressionV5
    NoOp NotEqual OneHot OnesLike Pack Pad PadV2 ParallelDynamicStitch Placeholder PlaceholderV2
    PlaceholderWithDefault Pow PreventGradient Prod QuantizeAndDequantizeV2 QuantizeAndDequantizeV3
    QuantizeAndDequantizeV4 RaggedGather RaggedRange RaggedTensorToTensor RandomShuffle RandomStandardNormal
    RandomUniform RandomUniformInt Range Rank Real RealDiv Reciprocal Relu Relu6 Reshape ResizeArea ResizeBicubic
    ResizeBilinear ResizeNearestNeighbor Reverse ReverseSequence ReverseV2 RFFT RFFT2D RFFT3D RGBToHSV RightShift
    Rint Roll Round Rsqrt ScaleAndTranslate ScatterNd SegmentMax SegmentMean SegmentMin SegmentProd SegmentSum
    Select SelectV2 Selu Shape ShapeN Sigmoid Sign Sin Sinh Size Slice Snapshot Softmax
    SoftmaxCrossEntropyWithLogits Softplus Softsign SpaceToBatch SpaceToBatchND SpaceToDepth SparseFillEmptyRows
    SparseReshape SparseSegmentMean SparseSegmentMeanWithNumSegments SparseSegmentSqrtN
    SparseSegmentSqrtNWithNumSegments SparseSegmentSum SparseSegmentSumWithNumSegments
    SparseSoftmaxCrossEntropyWithLogits SparseTensorDenseMatMul SparseToDense Split SplitV Sqrt Square
    SquaredDifference Squeeze StatelessMultinomial StatelessRandomGetKeyCounter StatelessRandomNormal
    StatelessRandomNormalV2 StatelessRandomUniform StatelessRandomUniformInt StatelessRandomUniformIntV2
    StatelessRandomUniformV2 StatelessTruncatedNormal StatelessTruncatedNormalV2 StopGradient StridedSlice Sub Sum
    Tan Tanh TensorListConcatV2 TensorListElementShape TensorListFromTensor TensorListGather TensorListGetItem
    TensorListLength TensorListPopBack TensorListPushBack TensorListReserve TensorListResize TensorListSetItem
    TensorListSplit TensorListStack TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub
    TensorScatterUpdate TensorStridedSliceUpdate Tile TopK TopKV2 Transpose TruncateDiv TruncatedNormal TruncateMod
    Unique UniqueWithCounts Unpack UnravelIndex UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd
    UnsortedSegmentSum UpperBound Where Xdivy Xlogy ZerosLike
"""
# Of training, in functions that Keras 2 wrote beside the forward pass, and recurrent networks on GPUs.
_BACKWARD = """
    AccumulateNV2 AvgPoolGrad AvgPool3DGrad BatchNormWithGlobalNormalizationGrad BiasAddGrad BroadcastGradientArgs
    Conv2DBackpropFilter Conv3DBackpropFilterV2 CudnnRNN CudnnRNNBackprop CudnnRNNBackpropV2 CudnnRNNBackpropV3
    CudnnRNNV2 CudnnRNNV3 DepthwiseConv2dNativeBackpropFilter DepthwiseConv2dNativeBackpropInput EluGrad
    FakeQuantWithMinMaxVarsGradient FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3 InvGrad
    LeakyReluGrad LRNGrad MaxPool3DGrad MaxPoolGrad MaxPoolGradV2 MirrorPadGrad ReciprocalGrad Relu6Grad ReluGrad
    ResizeBicubicGrad ResizeBilinearGrad ResizeNearestNeighborGrad RsqrtGrad SeluGrad SigmoidGrad SoftplusGrad
    SoftsignGrad SqrtGrad StridedSliceGrad TanhGrad
"""
# Which call other functions of the same file, by name.
_CALLS = "Case If PartitionedCall StatefulPartitionedCall StatelessCase StatelessIf StatelessWhile While"
# Weights, which lie in memory.
_WEIGHTS = """
    AssignAddVariableOp AssignSubVariableOp AssignVariableOp DestroyResourceOp DisableCopyOnRead ReadVariableOp
    ResourceGather ResourceGatherNd ResourceScatterAdd ResourceScatterUpdate VarHandleOp VariableShape
    VarIsInitializedOp
"""
PLAIN = frozenset(f"{_TENSORS} {_BACKWARD} {_CALLS} {_WEIGHTS}".split())
# What ``tf.saved_model.save`` writes into the two functions by which a later TensorFlow might save and restore weights.
# Nothing calls them: weights are read from ``variables/`` without them.
SAVERS = frozenset(["MergeV2Checkpoints", "RestoreV2", "SaveV2", "ShardedFilename", "StaticRegexFullMatch",
                    "StringJoin"])
