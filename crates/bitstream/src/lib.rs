//! Bitstreams: catalogue manifests, the .bit container, digests, compatibility.
