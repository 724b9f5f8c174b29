//! The card driver: sequences of register accesses, written once for every card.
