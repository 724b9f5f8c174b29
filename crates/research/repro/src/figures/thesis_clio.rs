//! Clio's own evaluation in the thesis: the test bed of Figs. 19 and 20 without a card, with other numbers of clients, stores and bytes.

use anyhow::Result;

use super::supernic_19::measure;
use crate::outcome::{Axis, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series};
use crate::parameters::{CLIO_HOSTS, CLIO_OPERATIONS, CLIO_THREADS, CLIO_WARM_UP, Parameters};
use crate::ycsb::{Load, PAPER_ARMS, RunInputs, WORKLOADS, YcsbMeasurement, YcsbWorkload};

/// Million operations a second of workloads A, B and C by a host's threads (`data_ycsb_thread`).
const BY_THREADS: [(usize, [f64; 3]); 4] = [
    (1, [0.178, 0.163, 0.163]),
    (2, [0.332, 0.317, 0.317]),
    (4, [0.615, 0.627, 0.627]),
    (8, [1.044, 1.085, 1.104]),
];
/// Mean latencies in µs by hosts (`data_ycsb_cn`; of one host they are Fig. 19's).
const BY_HOSTS: [(usize, [f64; 3]); 3] =
    [(2, [14.138, 13.792, 13.012]), (3, [23.87, 22.759, 21.613]), (4, [29.773, 28.988, 28.875])];
/// Million operations a second by stores (`data_ycsb_mn`).
const BY_STORES: [(usize, [f64; 3]); 4] = [
    (1, [1.044, 1.085, 1.104]),
    (2, [2.049, 1.981, 1.945]),
    (3, [2.273, 2.434, 2.494]),
    (4, [2.354, 2.368, 2.504]),
];
/// Latencies in µs of reading and writing a key's value by its bytes (`data_kvs_latency`).
const PAIRS: [(usize, [f64; 2]); 4] =
    [(16, [3.054, 3.033]), (64, [3.184, 3.408]), (256, [3.733, 3.65]), (1_024, [5.893, 4.841])];
/// The same of memory (`data_read_latency` and `data_write_latency`, column Clio).
const MEMORY: [(usize, [f64; 2]); 4] =
    [(16, [2.542, 2.35]), (64, [2.638, 2.758]), (256, [2.999, 2.92]), (1_024, [4.35, 3.685])];
/// Goodput in Gbit/s of threads that read, and that write, 1,024 bytes and wait (`data_throughput`).
const GOODPUT: [(usize, [f64; 2]); 6] = [
    (1, [1.879, 2.214]),
    (2, [3.728, 4.460]),
    (4, [7.368, 8.640]),
    (8, [8.880, 9.132]),
    (12, [8.880, 9.132]),
    (16, [8.880, 9.132]),
];
const GOODPUT_BYTES: usize = 1_024;
const ACCESSES: [YcsbWorkload; 2] = [
    YcsbWorkload { name: "read", reads_percent: 100 },
    YcsbWorkload { name: "write", reads_percent: 0 },
];
/// Cells to which something of the test bed was fitted: writes of 1,024 bytes, and A of two to four hosts and stores.
const FITTED: [f64; 8] = [3.685, 4.841, 14.138, 23.87, 29.773, 2.049, 2.273, 2.354];
/// The tolerance of a cell.
const CELL: f64 = 0.1;

/// One run of the test bed.
struct Cell {
    bed: RunInputs,
    workload: YcsbWorkload,
    clients: usize,
}

impl Cell {
    fn run(&self, parameters: &Parameters) -> Result<YcsbMeasurement> {
        let load = Load {
            workload: self.workload,
            clients: self.clients,
            warm_up: parameters.count(&CLIO_WARM_UP),
            operations: parameters.count(&CLIO_OPERATIONS),
            lost_ppm: 0.0,
        };
        measure(parameters, &self.bed, PAPER_ARMS[0], load)
    }
}

/// A table of the authors beside ours.
struct Comparison<'a, const N: usize> {
    what: &'static str,
    unit: &'static str,
    rows: &'a [(usize, [f64; N])],
    workloads: [YcsbWorkload; N],
}

impl<const N: usize> Comparison<'_, N> {
    /// Adds its cells: `run` measures one by its row and workload.
    fn add(
        &self,
        outcome: &mut FigureOutcome,
        run: impl Fn(usize, YcsbWorkload) -> Result<f64>,
    ) -> Result<Vec<Series>> {
        let mut series = self.workloads.map(|_| (Vec::new(), Vec::new()));
        for (row, published) in self.rows {
            for (column, workload) in self.workloads.into_iter().enumerate() {
                let (paper, ours) = (published[column], run(*row, workload)?);
                let bound = ExpectedBound::Share(paper, CELL);
                let what = format!("{row} {} {}", self.what, workload.name);
                let kind =
                    if FITTED.contains(&paper) { Expected::fitted } else { Expected::predicted };
                outcome.check(what, self.unit, kind(Origin::Data, bound), ours);
                series[column].0.push((*row as f64, ours));
                series[column].1.push((*row as f64, paper));
            }
        }
        let named = self.workloads.into_iter().zip(series).flat_map(|(workload, (ours, paper))| {
            [Series::ours(workload.name, ours), Series::paper(workload.name, paper)]
        });
        Ok(named.collect())
    }
}

pub(super) fn run(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    let threads = parameters.count(&CLIO_THREADS) as usize;
    let bed = RunInputs::of_clio(parameters);
    let measured = |bed: &RunInputs, clients, workload| {
        Cell { bed: bed.clone(), workload, clients }.run(parameters)
    };
    let by_threads = Comparison {
        what: "threads of a host,",
        unit: "million/s",
        rows: &BY_THREADS,
        workloads: WORKLOADS,
    };
    by_threads
        .add(&mut outcome, |clients, workload| Ok(measured(&bed, clients, workload)?.rate / 1e6))?;
    let by_hosts =
        Comparison { what: "hosts,", unit: "µs", rows: &BY_HOSTS, workloads: WORKLOADS };
    let series = by_hosts.add(&mut outcome, |hosts, workload| {
        Ok(measured(&bed, hosts * threads, workload)?.mean_us)
    })?;
    let by_stores =
        Comparison { what: "stores,", unit: "million/s", rows: &BY_STORES, workloads: WORKLOADS };
    let clients = parameters.count(&CLIO_HOSTS) as usize * threads;
    by_stores.add(&mut outcome, |stores, workload| {
        let bed = RunInputs { stores, ..bed.clone() };
        Ok(measured(&bed, clients, workload)?.rate / 1e6)
    })?;
    by_bytes(&mut outcome, parameters)?;
    let (x, y) = ("Hosts", "Mean latency (µs)");
    outcome.plot = Some(Plot { x, y, axis: Axis::Linear, series });
    notes(&mut outcome);
    Ok(outcome)
}

/// Tables by the bytes of what is read or written, and those of memory.
fn by_bytes(outcome: &mut FigureOutcome, parameters: &Parameters) -> Result<()> {
    let beds = [RunInputs::of_clio(parameters), RunInputs::of_clio_memory(parameters)];
    let measured = |bed: &RunInputs, value_bytes, clients, workload| {
        let bed = RunInputs { value_bytes, ..bed.clone() };
        Cell { bed, workload, clients }.run(parameters)
    };
    for ((what, rows), bed) in
        [("bytes of a value,", &PAIRS), ("bytes of memory,", &MEMORY)].into_iter().zip(&beds)
    {
        let table = Comparison { what, unit: "µs", rows, workloads: ACCESSES };
        table.add(outcome, |bytes, workload| Ok(measured(bed, bytes, 1, workload)?.mean_us))?;
    }
    let goodput = Comparison {
        what: "threads on memory,",
        unit: "Gbit/s",
        rows: &GOODPUT,
        workloads: ACCESSES,
    };
    goodput.add(outcome, |clients, workload| {
        let rate = measured(&beds[1], GOODPUT_BYTES, clients, workload)?.rate;
        Ok(rate * GOODPUT_BYTES as f64 * 8.0 / 1e9)
    })?;
    Ok(())
}

fn notes(outcome: &mut FigureOutcome) {
    outcome.note(
        "The test bed of Fig. 19 without a card, with the links of 40 Gbit/s of this evaluation. Three numbers of both are fitted to these tables: that a write is answered \
         before its value is moved (to one thread that writes 1,024 bytes of memory), the store's time (to one that writes a value of as many), and how much longer the store moves a value that is written: \
         the mean of what A beside C gives in the six rows of 16 operations and more, 0.90 to 1.21. Threads, hosts and stores are the authors' own: 8 threads of a host are the 8 operations that the cells of Fig. 19 have under way.",
    );
    outcome.note(
        "Outside are, first, few threads: with 2 and 4 the authors' operations take 6.0 to 6.5 µs, more than the 5.6 to 6.1 of one, and ours wait for each other only \
         where the store is busy, for no part has a spread. Second, small values: a frame here has memcached's text, UDP, IP and the transport's header, 0.4 µs on \
         two ways of 10 Gbit/s, and the store's time, which Fig. 19 has from values of 1,000 bytes, does not shrink with them. The authors' key-value store takes 0.5 µs more than its memory \
         with 16 bytes and 1.5 µs more with 1,024. Memory alone has their slope, 1.8 µs for 1,024 bytes. Third, C of two hosts, whose 13.0 µs for 16 operations of 1,000 B are \
         9.8 Gbit/s of values on a link of 10, and more than their 9.4 of goodput. Fourth, A of four stores, where clients are what limits and ours take less.",
    );
    outcome.note(
        "Not compared: 4 B and 4 KiB (a value here has 16 B to 1,300), goodput of asynchronous threads, whose operations under way are not printed, latencies by \
         hosts (data_cn_scale), whose 5.5 µs for 1,024 B are not the 4.35 of data_read_latency, and tables of parts that the test bed does not have: RDMA, translation, allocation, \
         offloads, traffic on the board, energy.",
    );
}
