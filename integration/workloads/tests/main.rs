//! Workloads, and the planner on them beside others.

mod comparison;
mod oracle;
mod small;
