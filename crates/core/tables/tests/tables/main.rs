//! The tables as the card sees them: rows as words, banks and their differences, the register map.

mod image;
mod registers;
mod rows;
mod shell;
mod strategies;
