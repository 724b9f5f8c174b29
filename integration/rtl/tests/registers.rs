//! What a host can do to the shell's ports, and what the shell does to the memory's.
