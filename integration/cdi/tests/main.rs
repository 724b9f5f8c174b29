//! Files of the Container Device Interface: kept in step with a daemon, and written through every failure.

mod daemon;
mod states;
