//! A card in a few lines: it does at once what it is asked, and refuses what would harm packets.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use snic_controller::{CardCommand, CardCounters, CardReport};
use snic_domain::{CardProfile, ChainIdentity, DagUid, Digest, RegionId, ReportedChain};
use snic_tables::{
    CardSnapshot, ConfigurationWay, DagCounters, DagRow, DropCause, InstanceRow, LatencyReading,
    LoadFailure, PageRow, ProgramFailure, RegionSnapshot, RegionStatus, RowCodec, StateDone,
    StateFailure, StateOrder, Table, TableDelta, TableImage, UnconfiguredNt, WindowChanges,
    WindowWrite,
};

/// Contexts: a number for each region and UID.
#[derive(Default)]
pub struct TinyStates {
    pub kept: BTreeMap<(RegionId, DagUid), u64>,
    /// Saved contexts by offset: DAG, build of the chain, and content.
    pub saved: BTreeMap<u32, (DagUid, ChainIdentity, u64)>,
    /// Commands to wrappers, in order.
    pub asked: Vec<(RegionId, StateOrder)>,
    /// Failures of the next saves.
    pub failing: VecDeque<StateFailure>,
    /// Failures of the next restores.
    pub failing_restores: VecDeque<StateFailure>,
}

impl TinyStates {
    fn answer(
        &mut self,
        (status, chains): (RegionStatus, &BTreeMap<Digest, ReportedChain>),
        region: RegionId,
        order: StateOrder,
    ) -> Result<StateDone, StateFailure> {
        self.asked.push((region, order));
        let done = |bytes| Ok(StateDone { bytes, check: 7, took: Duration::from_micros(10) });
        if let StateOrder::Erase { slot } = order {
            self.saved.remove(&slot.offset);
            return done(slot.length);
        }
        let RegionStatus::Loaded(digest) = status else { panic!("{order:?} in {status:?}") };
        let identity = chains[&digest].identity;
        let failure = match order {
            StateOrder::Save { .. } => self.failing.pop_front(),
            StateOrder::Restore { .. } => self.failing_restores.pop_front(),
            StateOrder::Clear { .. } | StateOrder::Erase { .. } => None,
        };
        if let Some(failure) = failure {
            return Err(failure);
        }
        match order {
            StateOrder::Save { uid, slot } => {
                let kept = self.kept.get(&(region, uid)).copied().unwrap_or(0);
                self.saved.insert(slot.offset, (uid, identity, kept));
                done(slot.length)
            }
            StateOrder::Restore { uid, slot, check } => {
                let (whose, of, kept) = self.saved[&slot.offset];
                assert_eq!((whose, of, check), (uid, identity, 7), "the state of somebody else");
                self.kept.insert((region, uid), kept);
                done(slot.length)
            }
            StateOrder::Clear { uid } => {
                self.kept.remove(&(region, uid));
                done(64)
            }
            StateOrder::Erase { .. } => unreachable!("it was answered above"),
        }
    }
}

/// Content of a card, and its faults to come.
pub struct TinyCard {
    pub profile: CardProfile,
    pub tables: TableImage,
    pub version: u32,
    pub regions: Vec<RegionStatus>,
    pub decoupled: BTreeSet<RegionId>,
    /// Regions that the driver found decoupled and coupled again.
    pub found_decoupled: BTreeSet<RegionId>,
    /// Reports of loaded regions, by the digest of what was loaded.
    pub chains: BTreeMap<Digest, ReportedChain>,
    /// Reports of regions with bitstreams of these digests in place of the true ones.
    pub lies: BTreeMap<Digest, ReportedChain>,
    /// Digests loaded, in order, failed loads included.
    pub loads: Vec<(RegionId, Digest)>,
    pub words_written: usize,
    /// Loads of these regions fail like this.
    pub bad_regions: BTreeMap<RegionId, LoadFailure>,
    /// Loads of these digests fail like this.
    pub bad_digests: BTreeMap<Digest, LoadFailure>,
    /// Failures of the next commits, and whether they take effect all the same.
    pub bad_commits: VecDeque<(ProgramFailure, bool)>,
    /// Bytes that came in, by the row of the DAG.
    pub counted: BTreeMap<u16, u64>,
    /// All counters of DAGs, by row, and their drops; those of a row count in place of `counted`.
    pub dags: BTreeMap<u16, (DagCounters, [u64; DropCause::ALL.len()])>,
    /// Cycles of its clock, if it counts them.
    pub cycles: Option<u64>,
    /// Latencies that it says with its next counters.
    pub latency: LatencyReading,
    /// Packets that met a memory fault.
    pub faults: u64,
    /// Contexts in regions, and saved ones.
    pub states: TinyStates,
    /// Drawn at power-up.
    pub boot_id: u32,
    /// Way in which its NTs take configurations.
    pub configures: Option<ConfigurationWay>,
    /// Regions and slots with NTs that take no configuration by their windows.
    pub refuse: BTreeSet<(u8, u8)>,
    /// Number of configurations that NTs were asked to take by their windows.
    pub windows_written: usize,
    /// Whether NTs without a configuration pass packets on, as on a software card.
    pub passes_through: bool,
    pub guards: bool,
    /// Configurations of DAGs that it was given, by UID and tag, in order.
    pub configured: Vec<(u32, u32)>,
    /// Why the next role is not loaded.
    pub bad_role: Option<String>,
    /// Why its driver does not reset it.
    pub bad_reset: Option<String>,
    /// The card is switched off.
    pub off: bool,
}

impl TinyCard {
    pub fn new(profile: CardProfile) -> Self {
        Self {
            tables: TableImage::default(),
            version: 0,
            regions: vec![RegionStatus::Empty; profile.regions.len()],
            profile,
            decoupled: BTreeSet::new(),
            found_decoupled: BTreeSet::new(),
            chains: BTreeMap::new(),
            lies: BTreeMap::new(),
            loads: Vec::new(),
            words_written: 0,
            bad_regions: BTreeMap::new(),
            bad_digests: BTreeMap::new(),
            bad_commits: VecDeque::new(),
            counted: BTreeMap::new(),
            dags: BTreeMap::new(),
            cycles: None,
            latency: LatencyReading::default(),
            faults: 0,
            states: TinyStates::default(),
            boot_id: 1,
            configures: Some(ConfigurationWay::Shell),
            refuse: BTreeSet::new(),
            windows_written: 0,
            passes_through: false,
            guards: true,
            configured: Vec::new(),
            bad_role: None,
            bad_reset: None,
            off: false,
        }
    }

    /// Loses what a power failure takes.
    pub fn power_cycle(&mut self) {
        self.tables = TableImage::default();
        self.version = 0;
        self.regions.fill(RegionStatus::Empty);
        self.states = TinyStates::default();
        self.boot_id += 1;
    }

    pub fn answer(&mut self, command: CardCommand) -> CardReport {
        if self.off {
            return CardReport::Lost { reason: "no answer on the bus".into() };
        }
        match command {
            CardCommand::ReadBack { ticket, .. } => {
                CardReport::ReadBack { ticket, snapshot: Box::new(self.snapshot()) }
            }
            CardCommand::Program { ticket, delta, configurations, windows, .. } => {
                let names = configurations.iter().map(|one| (one.uid.raw(), one.tag()));
                let came: Vec<_> = names.collect();
                self.check_configurations(&delta, &came);
                self.configured.extend(came);
                let unconfigured = self.tell(&windows);
                let result = match delta.is_empty() && !windows.writes.is_empty() {
                    true => Ok(self.version),
                    false => self.program(&delta),
                };
                CardReport::Programmed { ticket, result, unconfigured }
            }
            CardCommand::Load { ticket, region, digest, chain } => {
                self.chains.insert(digest, *self.lies.get(&digest).unwrap_or(&chain));
                CardReport::Loaded { ticket, region, result: self.load(region, digest, chain) }
            }
            CardCommand::State { ticket, region, order } => CardReport::State {
                ticket,
                region,
                result: self.states.answer(
                    (self.regions[region.index()], &self.chains),
                    region,
                    order,
                ),
            },
            CardCommand::LoadRole { ticket, .. } => match self.bad_role.take() {
                Some(reason) => CardReport::NotReleased { ticket, reason },
                None => CardReport::Released { ticket },
            },
            CardCommand::Reset { ticket, .. } => match self.bad_reset.take() {
                Some(reason) => CardReport::NotReset { ticket, reason },
                None => {
                    self.power_cycle();
                    CardReport::Released { ticket }
                }
            },
            CardCommand::Sample { ticket } => {
                let dag = |(row, bytes): (&u16, &u64)| {
                    (*row, DagCounters { bytes_intended: *bytes, ..DagCounters::default() })
                };
                let mut dags: BTreeMap<u16, DagCounters> = self.counted.iter().map(dag).collect();
                dags.extend(self.dags.iter().map(|(row, (counters, _))| (*row, *counters)));
                let dag_drops = self.dags.iter().map(|(row, (_, drops))| (*row, *drops));
                let mut counters = CardCounters {
                    cycles: self.cycles,
                    packets_in: 7,
                    dags: dags.into_iter().collect(),
                    dag_drops: dag_drops.collect(),
                    latency: std::mem::take(&mut self.latency),
                    ..CardCounters::default()
                };
                counters.drops[DropCause::MemoryFault as usize] = self.faults;
                CardReport::Sampled { ticket, counters: Box::new(counters) }
            }
        }
    }

    pub fn snapshot(&self) -> CardSnapshot {
        let ids = (0u8..).map(RegionId);
        let regions = ids.zip(&self.regions).map(|(id, status)| RegionSnapshot {
            status: *status,
            decoupled: self.decoupled.contains(&id),
            was_decoupled: self.decoupled.contains(&id) || self.found_decoupled.contains(&id),
            chain: self.chain_of(*status),
        });
        CardSnapshot {
            boot_id: self.boot_id,
            idcode: self.profile.idcode,
            version: self.version,
            tables: self.tables.clone(),
            regions: regions.collect(),
            configures: self.configures,
            passes_through: self.passes_through,
            guards: self.guards,
        }
    }

    /// Tells NTs configurations by their windows; gives those that do not take them.
    fn tell(&mut self, windows: &WindowChanges) -> Vec<UnconfiguredNt> {
        self.windows_written += windows.writes.len();
        let refused = windows.writes.iter();
        let refused =
            refused.filter(|write| self.refuse.contains(&(write.at.region, write.at.slot)));
        let nt = |write: &WindowWrite| UnconfiguredNt {
            uid: write.configuration.uid.raw(),
            at: write.at,
        };
        refused.map(nt).collect()
    }

    fn program(&mut self, delta: &TableDelta) -> Result<u32, ProgramFailure> {
        assert!(!delta.is_empty(), "a commit of nothing");
        self.check_owners(delta);
        let failure = self.bad_commits.pop_front();
        if failure.as_ref().is_none_or(|(_, takes_effect)| *takes_effect) {
            self.tables.apply(delta).expect("rows that the tables have");
            self.version += 1;
            self.words_written += delta.words();
        }
        for region in self.routed() {
            let status = self.regions[region.index()];
            assert!(
                matches!(status, RegionStatus::Loaded(_)) && !self.decoupled.contains(&region),
                "rows lead to region {region}, which is {status:?}"
            );
        }
        failure.map_or(Ok(self.version), |(failure, _)| Err(failure))
    }

    /// A row names what the card holds because the former row did, or what came with it.
    fn check_configurations(&self, delta: &TableDelta, came: &[(u32, u32)]) {
        for (key, words) in delta.rows().filter(|(key, _)| key.table == Table::Dag) {
            let named = |row: DagRow| (row.uid, row.configuration);
            let before = self.tables.get::<DagRow>(key.row).map(named);
            let Some(after) = DagRow::decode(words).map(named).filter(|(_, tag)| *tag != 0) else {
                continue;
            };
            assert!(self.configures.is_some(), "a configuration for a card that takes none");
            if self.configures == Some(ConfigurationWay::Windows) {
                continue;
            }
            assert_ne!(before == Some(after), came.contains(&after), "{after:?} came as {came:?}");
        }
    }

    /// Packets of the old tables are under way while a commit runs: a page that changed hands in it
    /// would be two tenants'.
    fn check_owners(&self, delta: &TableDelta) {
        let mut after = self.tables.clone();
        after.apply(delta).expect("rows that the tables have");
        for page in 0..Table::Page.rows() as u16 {
            let owner = |tables: &TableImage| tables.get::<PageRow>(page).map(|r| (r.tenant, r.nt));
            if let (Some(before), Some(after)) = (owner(&self.tables), owner(&after)) {
                assert_eq!(before, after, "page {page} goes from one to the other in one commit");
            }
        }
    }

    /// Report of a region.
    pub fn chain_of(&self, status: RegionStatus) -> ReportedChain {
        match status {
            RegionStatus::Loaded(digest) => self.chains.get(&digest).copied().unwrap_or_default(),
            _ => ReportedChain::default(),
        }
    }

    fn load(
        &mut self,
        region: RegionId,
        digest: Digest,
        chain: ReportedChain,
    ) -> Result<Duration, LoadFailure> {
        assert!(!self.routed().contains(&region), "rows lead to {region}, which is to be loaded");
        self.loads.push((region, digest));
        let of_region = self.bad_regions.get(&region);
        let failure = of_region.or_else(|| self.bad_digests.get(&digest)).cloned();
        let failure = failure.or_else(|| {
            let proved = self.chains[&digest].check(&chain);
            proved.err().map(LoadFailure::OtherChain)
        });
        let status = &mut self.regions[region.index()];
        match failure {
            None => {
                *status = RegionStatus::Loaded(digest);
                self.states.kept.retain(|(of, _), _| *of != region);
                self.decoupled.remove(&region);
                return Ok(Duration::from_millis(4));
            }
            Some(LoadFailure::Controller { .. } | LoadFailure::Timeout(_)) => {
                *status = RegionStatus::Broken;
            }
            Some(LoadFailure::OtherChain(_)) => {
                *status = RegionStatus::Loaded(digest);
                self.decoupled.insert(region);
            }
            Some(LoadFailure::DrainTimeout { .. } | LoadFailure::NoBytes(_)) => {}
        }
        Err(failure.expect("the case of none is above"))
    }

    /// The regions that rows lead to.
    pub fn routed(&self) -> BTreeSet<RegionId> {
        (0..Table::Instance.rows() as u16)
            .filter_map(|row| self.tables.get::<InstanceRow>(row))
            .map(|row| RegionId(row.region().expect("on this card")))
            .collect()
    }

    /// The rows used of all tables that belong to DAGs.
    pub fn dag_rows(&self) -> usize {
        let tables = [Table::Dag, Table::Stage, Table::Chain, Table::Instance, Table::RateLimiter];
        tables.iter().map(|table| self.tables.rows_used(*table)).sum()
    }
}
