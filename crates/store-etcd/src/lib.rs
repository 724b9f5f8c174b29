//! etcd as the fleet's store.
