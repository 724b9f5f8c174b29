//! The driver's service for the kubelet: a claim is prepared when the card, read back, serves its DAGs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use parking_lot::Mutex;
use snic_api::v1::{Dag, VmBinding};
use snic_cdi::{Spec, SpecDevice, SpecFolder, spec};
use tokio::task::JoinSet;
use tonic::{Request, Response, Status};

use crate::daemon::DaemonClient;
use crate::dags::server::DagServer;
use crate::dags::spec::UID_LABEL;
use crate::dra::interface::{self, PodInterface};
use crate::dra::plan::{PlannedFunction, plan};
use crate::dra::records::{ClaimRecord, FunctionRecord, RecordFolder};
use crate::dra::settings::DraSettings;
use crate::dra::status::{self, NotServed, ServedFunction};
use crate::dra::{CDI_KIND, DraError};
use crate::dra_v1::dra_plugin_server::DraPlugin;
use crate::dra_v1::{
    Claim, Device, NodePrepareResourceResponse, NodePrepareResourcesRequest,
    NodePrepareResourcesResponse, NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest,
    NodeUnprepareResourcesResponse,
};

/// Most claims of one call: more than a node has pods.
const CLAIMS_MAX: usize = 1_024;

/// Cause of preparing a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrepareCause {
    /// The kubelet, which also says when it is over.
    Kubelet,
    /// The scheduler, by a binding condition.
    Scheduler,
}

/// Whether a DAG was made for the claim with this UID.
fn is_of(dag: &Dag, claim: &str) -> bool {
    dag.labels.get(UID_LABEL).is_some_and(|uid| uid == claim)
}

/// The driver of one node.
pub struct ClaimDriver {
    settings: Arc<DraSettings>,
    api: kube::Client,
    daemon: DaemonClient,
    /// For DAGs that claims carry.
    dags: DagServer,
    host: snic_cdi::Host,
    folder: SpecFolder,
    records: RecordFolder,
    /// A claim is worked on by one call at a time.
    locks: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl ClaimDriver {
    /// With the folders of the settings.
    ///
    /// # Errors
    /// [`DraError`] where a folder cannot be created.
    pub fn open(settings: &Arc<DraSettings>, api: kube::Client) -> Result<Self, DraError> {
        let host = snic_cdi::Host::new(&settings.sysfs);
        Ok(Self {
            settings: Arc::clone(settings),
            api,
            daemon: DaemonClient::new(&settings.daemon, settings.bind_within(), None),
            dags: DagServer::new(&settings.inventory),
            folder: SpecFolder::open(&settings.cdi_dir, host.clone())?.with_kind(CDI_KIND),
            host,
            records: RecordFolder::open(&settings.state_dir).map_err(DraError::Records)?,
            locks: Mutex::default(),
        })
    }

    fn lock(&self, claim: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock();
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry(claim.to_owned()).or_default())
    }

    /// Binds what a claim was allocated, and says in its status how that went. Repeating it changes nothing.
    ///
    /// # Errors
    /// Text for the pod's events. What the call bound is unbound then, unless the claim was prepared before.
    pub async fn prepare(&self, claim: &Claim, cause: PrepareCause) -> Result<Vec<Device>, String> {
        let lock = self.lock(&claim.uid);
        let _held = lock.lock().await;
        let api: Api<ResourceClaim> = Api::namespaced(self.api.clone(), &claim.namespace);
        let (namespace, name) = (&claim.namespace, &claim.name);
        let object = api.get(name).await;
        let object = object.map_err(|error| format!("claim {namespace}/{name}: {error}"))?;
        if object.metadata.uid.as_deref() != Some(&claim.uid) {
            return Err(format!("claim {namespace}/{name} was replaced by another of this name"));
        }
        let functions = match plan(&object, &self.settings) {
            Ok(functions) => functions,
            Err(error) => {
                let why = error.to_string();
                let refused = NotServed::Refused(&why);
                status::report_failure(&api, &object, &self.settings, refused).await;
                return Err(why);
            }
        };
        match self.serve(claim, &functions, cause).await {
            Ok(served) => {
                status::report(&api, &object, &self.settings, &served).await;
                tracing::info!(claim = %format!("{namespace}/{name}"), "claim prepared");
                Ok(served.iter().map(|served| self.device(served)).collect())
            }
            Err(why) => {
                tracing::warn!(claim = %format!("{namespace}/{name}"), why, "claim not prepared");
                let not_yet = NotServed::Yet(&why);
                status::report_failure(&api, &object, &self.settings, not_yet).await;
                Err(why)
            }
        }
    }

    fn device(&self, served: &ServedFunction) -> Device {
        Device {
            // Of `request/alternative` the kubelet knows the first part.
            request_names: served.planned.request.split('/').take(1).map(str::to_owned).collect(),
            pool_name: self.settings.node.clone(),
            device_name: served.planned.device.clone(),
            cdi_device_ids: vec![format!("{CDI_KIND}={}", served.planned.uuid)],
        }
    }

    /// Binds functions: all of them, or none beyond those that were bound before.
    async fn serve(
        &self,
        claim: &Claim,
        functions: &[PlannedFunction],
        cause: PrepareCause,
    ) -> Result<Vec<ServedFunction>, String> {
        let began = self.begin(claim, functions, cause);
        let mut record = began.map_err(|error| error.to_string())?;
        let mut served = Vec::new();
        for (planned, noted) in functions.iter().zip(&mut record.functions) {
            match self.serve_one(claim, planned, noted).await {
                Ok(function) => served.push(function),
                Err(why) if record.is_prepared => return Err(why),
                Err(why) => {
                    // The note stays where that fails, and the kubelet asks for more, or for its end.
                    if let Err(error) = self.release(&claim.uid).await {
                        tracing::warn!(claim = claim.uid, why = error, "claim not released");
                    }
                    return Err(why);
                }
            }
        }
        record.is_prepared = true;
        self.records.write(&claim.uid, &record).map_err(|error| error.to_string())?;
        Ok(served)
    }

    /// Notes what is about to be bound.
    fn begin(
        &self,
        claim: &Claim,
        functions: &[PlannedFunction],
        cause: PrepareCause,
    ) -> std::io::Result<ClaimRecord> {
        let earlier = self.records.read(&claim.uid)?;
        let is_of_kubelet = cause == PrepareCause::Kubelet
            || earlier.as_ref().is_some_and(|record| record.is_of_kubelet);
        let same = |record: &ClaimRecord| {
            record.functions.len() == functions.len()
                && record.functions.iter().zip(functions).all(|(a, b)| a.uuid == b.uuid)
        };
        if let Some(mut record) = earlier.filter(same) {
            if record.is_of_kubelet != is_of_kubelet {
                record.is_of_kubelet = is_of_kubelet;
                self.records.write(&claim.uid, &record)?;
            }
            return Ok(record);
        }
        let functions = functions.iter().map(|planned| FunctionRecord {
            uuid: planned.uuid.clone(),
            tenant: planned.tenant.clone(),
            // Before a function is bound, its interface is not known, and no pod has it.
            interface: None,
            own_dag: planned.own_dag.as_ref().map(|dag| dag.name.clone()),
        });
        let record = ClaimRecord {
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
            is_prepared: false,
            is_of_kubelet,
            functions: functions.collect(),
        };
        self.records.write(&claim.uid, &record)?;
        Ok(record)
    }

    async fn serve_one(
        &self,
        claim: &Claim,
        planned: &PlannedFunction,
        noted: &mut FunctionRecord,
    ) -> Result<ServedFunction, String> {
        if let Some(dag) = &planned.own_dag {
            self.provide(claim, dag).await?;
        }
        let bound = self.daemon.bind(&planned.uuid, planned.chains()).await;
        let binding = bound.map_err(|status| status.message().to_owned())?;
        let function = binding.functions.first();
        let function = function.ok_or("the SmartNIC daemon gave no function; try again")?.clone();
        let card = function.card.strip_prefix("cards/").unwrap_or(&function.card);
        if card != planned.device {
            return Err(format!(
                "the DAG is on card {card}, but the claim was allocated card {}; select the card \
                 in the claim: device.attributes[\"snic.dev\"].card == \"{card}\"",
                planned.device
            ));
        }
        let number = function.virtual_function;
        // Once a pod has the interface, the host no longer knows its kind.
        let was_tap = noted.interface.as_ref().is_some_and(|interface| interface.is_tap);
        let host = self.settings.interface(card, number).map(str::to_owned);
        let seen = tokio::task::spawn_blocking(move || host.is_some_and(|h| interface::is_tap(&h)));
        let is_tap = was_tap || seen.await.is_ok_and(|is_tap| is_tap);
        noted.interface = self.settings.interface(card, number).map(|host| PodInterface {
            is_tap,
            uuid: planned.uuid.clone(),
            host: host.to_owned(),
            name: planned.parameters.interface.clone(),
            mac: function.mac_address.clone(),
            addresses: planned.parameters.addresses.clone(),
        });
        let has_interfaces = self
            .settings
            .cards
            .iter()
            .any(|known| known.id == card && !known.interfaces.is_empty());
        if has_interfaces && noted.interface.is_none() {
            return Err(format!(
                "card {card} gave function {number}, but cards.interfaces of the driver's settings \
                 does not name its interface"
            ));
        }
        let spec = self.spec(&binding, noted);
        let written = self.folder.put_spec(&planned.uuid, &spec);
        written.map_err(|error| error.to_string())?;
        Ok(ServedFunction {
            planned: planned.clone(),
            interface: noted.interface.clone(),
            mac: function.mac_address,
            binding: binding.name,
        })
    }

    /// Creates the DAG that a claim carries, unless it is there.
    async fn provide(&self, claim: &Claim, dag: &Dag) -> Result<(), String> {
        let present = self.dags.get(&dag.name).await;
        match present.map_err(|status| status.message().to_owned())? {
            Some(present) if is_of(&present, &claim.uid) => Ok(()),
            Some(_) => Err(format!("{} exists, and was not made for this claim", dag.name)),
            None => {
                let created = self.dags.create(dag.clone()).await;
                created.map_err(|status| format!("the DAG of the claim: {}", status.message()))
            }
        }
    }

    /// Deletes the DAG that a claim carried; not one of that name that somebody else made.
    async fn withdraw(&self, claim: &str, name: &str) -> Result<(), Status> {
        match self.dags.get(name).await? {
            Some(dag) if is_of(&dag, claim) => self.dags.clear(name, &dag.etag).await,
            _ => Ok(()),
        }
    }

    /// The container's edits: the environment, nodes of VFIO, and the hook that moves the interface.
    fn spec(&self, binding: &VmBinding, noted: &FunctionRecord) -> Spec {
        let function = binding.functions.first();
        let mut edits =
            function.map(|function| self.host.edits(binding, function)).unwrap_or_default();
        edits.hooks.extend(noted.interface.as_ref().map(|interface| spec::Hook {
            hook_name: "createRuntime".into(),
            path: self.settings.program.display().to_string(),
            args: interface.hook_arguments(),
        }));
        let device = SpecDevice { name: noted.uuid.clone(), container_edits: edits };
        Spec::new(CDI_KIND, vec![device])
    }

    /// Gives back what a claim has. A claim that has nothing is no error.
    ///
    /// # Errors
    /// Text about the part that is not given back; the note stays, and the kubelet asks again.
    pub async fn unprepare(&self, claim: &Claim) -> Result<(), String> {
        let lock = self.lock(&claim.uid);
        let _held = lock.lock().await;
        let name = format!("{}/{}", claim.namespace, claim.name);
        let released = self.release(&claim.uid).await;
        match &released {
            Ok(()) => tracing::info!(claim = name, "claim released"),
            // The kubelet asks again, and tells nobody.
            Err(why) => tracing::warn!(claim = name, why, "claim not released"),
        }
        released
    }

    /// Releases a claim that no kubelet has asked for: it lost its allocation.
    pub async fn release_unasked(&self, claim: &str) {
        let lock = self.lock(claim);
        let _held = lock.lock().await;
        match self.records.read(claim) {
            Ok(Some(record)) if !record.is_of_kubelet => {}
            _ => return,
        }
        match self.release(claim).await {
            Ok(()) => tracing::info!(claim, "claim without an allocation released"),
            Err(why) => tracing::warn!(claim, why, "claim not released"),
        }
    }

    /// The same for all claims but those that are allocated.
    pub async fn release_others(&self, allocated: &BTreeSet<String>) {
        let claims = self.records.claims().unwrap_or_default();
        for claim in claims.difference(allocated) {
            self.release_unasked(claim).await;
        }
    }

    async fn release(&self, claim: &str) -> Result<(), String> {
        let record = self.records.read(claim).map_err(|error| error.to_string())?;
        for function in record.iter().flat_map(|record| &record.functions) {
            if let Some(interface) = function.interface.clone() {
                let moved = tokio::task::spawn_blocking(move || interface.detach()).await;
                let moved = moved.map_err(|error| error.to_string())?;
                moved.map_err(|error| error.to_string())?;
            }
            let unbound = self.daemon.unbind(&function.uuid, &function.tenant).await;
            unbound.map_err(|status| status.message().to_owned())?;
            if let Some(dag) = &function.own_dag {
                let withdrawn = self.withdraw(claim, dag).await;
                withdrawn.map_err(|status| format!("{dag}: {}", status.message()))?;
            }
            self.folder.remove(&function.uuid).map_err(|error| error.to_string())?;
        }
        self.records.remove(claim).map_err(|error| error.to_string())
    }
}

/// The service of a driver, which tasks share.
#[derive(Clone)]
pub struct DriverService(pub Arc<ClaimDriver>);

impl DriverService {
    /// Calls `work` for each claim, all at once: one that waits for its card keeps no other waiting.
    async fn each<T: Send + 'static, F>(
        &self,
        claims: Vec<Claim>,
        work: impl Fn(Arc<ClaimDriver>, Claim) -> F,
    ) -> Result<HashMap<String, Result<T, String>>, Status>
    where
        F: Future<Output = Result<T, String>> + Send + 'static,
    {
        if claims.len() > CLAIMS_MAX {
            let text = format!("{} claims in one call (at most {CLAIMS_MAX})", claims.len());
            return Err(Status::invalid_argument(text));
        }
        let mut tasks = JoinSet::new();
        for claim in claims {
            let uid = claim.uid.clone();
            let done = work(Arc::clone(&self.0), claim);
            tasks.spawn(async move { (uid, done.await) });
        }
        let mut results = HashMap::new();
        while let Some(ended) = tasks.join_next().await {
            let (uid, result) = ended.map_err(|error| Status::internal(error.to_string()))?;
            results.insert(uid, result);
        }
        Ok(results)
    }
}

#[tonic::async_trait]
impl DraPlugin for DriverService {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        let claims = request.into_inner().claims;
        let work = |driver: Arc<ClaimDriver>, claim: Claim| async move {
            driver.prepare(&claim, PrepareCause::Kubelet).await
        };
        let results = self.each(claims, work).await?;
        let reply = |result| match result {
            Ok(devices) => NodePrepareResourceResponse { devices, error: String::new() },
            Err(error) => NodePrepareResourceResponse { devices: Vec::new(), error },
        };
        let claims = results.into_iter().map(|(uid, result)| (uid, reply(result))).collect();
        Ok(Response::new(NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let claims = request.into_inner().claims;
        let work =
            |driver: Arc<ClaimDriver>, claim: Claim| async move { driver.unprepare(&claim).await };
        let results = self.each(claims, work).await?;
        let error = |result: Result<(), String>| result.err().unwrap_or_default();
        let reply = |result| NodeUnprepareResourceResponse { error: error(result) };
        let claims = results.into_iter().map(|(uid, result)| (uid, reply(result))).collect();
        Ok(Response::new(NodeUnprepareResourcesResponse { claims }))
    }
}
