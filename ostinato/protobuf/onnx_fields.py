"""Numbers of the fields of ONNX's messages (onnx.proto), as far as bytes of files are read here."""

MODEL_GRAPH, MODEL_FUNCTION = 7, 25
GRAPH_NODE, GRAPH_INITIALIZER, GRAPH_INPUT = 1, 5, 11
FUNCTION_NODE = 7
NODE_OUTPUT, NODE_NAME, NODE_OP_TYPE, NODE_ATTRIBUTE, NODE_DOMAIN = 2, 3, 4, 5, 7
ATTRIBUTE_NAME, ATTRIBUTE_TENSOR, ATTRIBUTE_GRAPH = 1, 5, 6
ATTRIBUTE_FLOATS, ATTRIBUTE_INTS, ATTRIBUTE_STRINGS = 7, 8, 9
ATTRIBUTE_TENSORS, ATTRIBUTE_GRAPHS = 10, 11
VALUE_NAME = 1
TENSOR_TYPE, TENSOR_NAME, TENSOR_RAW_DATA, TENSOR_DOCUMENTATION = 2, 8, 9, 12
TENSOR_EXTERNAL_DATA, TENSOR_DATA_LOCATION = 13, 14
# Values of a tensor's type, and the fields in which elements of these types lie as in memory.
FLOAT, FLOAT16, DOUBLE, BFLOAT16 = 1, 10, 11, 16
PACKED = {FLOAT: 4, DOUBLE: 10}
# The value of a tensor's location of data that says it is in a file of its own.
EXTERNAL = 1
