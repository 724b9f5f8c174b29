//! The shell beside the card model: the same accesses, the same answers.
