//! The controller by examples, as a machine of states on its own, and with all around it in a simulation.

mod engine;
mod examples;
mod simulation;

use examples::{elastic, support};
use simulation::{
    book, callers, fluid, loads, machines, model, number, operators, rates, reads, requests,
    residency, states, trust, usage, weights, windows, world,
};
