//! From a DAG to virtual chains to regions: the mapping, as a value with its explanation.
