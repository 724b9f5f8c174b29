//! Fair space and fair time: DRF, DRFQ, fluid rates.
