//! Fair shares and rates, as one program, so that what its tests share is compiled once.

mod bad_input;
mod drf_cards;
mod drf_golden;
mod drf_properties;
mod drfq_fluid;
mod fluid;
mod fluid_large;
mod fluid_properties;
mod held_properties;
