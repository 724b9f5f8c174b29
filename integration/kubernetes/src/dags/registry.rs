//! Objects that there are, their DAGs, and the order of work on them: events in, work out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

use super::object::{ObjectHead, ObjectKey};
use super::queue::{NamespaceQueue, WorkResult};
use super::settings::TenantRule;

/// An object that there is.
#[derive(Debug)]
struct KnownObject {
    head: ObjectHead,
    /// Name of its DAG on the server, where its namespace has a tenant.
    dag: Option<String>,
}

/// The objects, and the work on them.
#[derive(Debug, Default)]
pub struct Registry {
    rule: TenantRule,
    objects: HashMap<ObjectKey, KnownObject>,
    /// Objects by the name of their DAG: namespaces of one tenant may each have one of a name.
    by_dag: HashMap<String, BTreeSet<ObjectKey>>,
    /// Served rates, as last read, of DAGs that have one.
    served: BTreeMap<String, u64>,
    queue: NamespaceQueue,
}

impl Registry {
    /// Without objects.
    pub fn new(rule: TenantRule) -> Self {
        Self { rule, ..Self::default() }
    }

    /// Takes in an object as it is now. What the controller itself has written changes nothing here.
    pub fn seen(&mut self, head: ObjectHead, now: Instant) {
        let key = head.key.clone();
        let known = self.objects.get(&key);
        if known.is_some_and(|known| known.head == head) {
            return;
        }
        // A finalizer that comes or goes is no news of the owner's.
        let same = |known: &KnownObject| {
            (&known.head.uid, known.head.generation, known.head.is_deleting)
                == (&head.uid, head.generation, head.is_deleting)
        };
        let is_new = !known.is_some_and(same);
        let tenant = self.rule.tenant_of(&key.namespace);
        let dag = tenant.ok().map(|tenant| format!("tenants/{tenant}/dags/{}", key.name));
        if let Some(dag) = &dag {
            self.by_dag.entry(dag.clone()).or_default().insert(key.clone());
        }
        self.objects.insert(key.clone(), KnownObject { head, dag });
        self.queue.add(&key, is_new, now);
    }

    /// Takes in that an object has gone.
    pub fn gone(&mut self, key: &ObjectKey, now: Instant) {
        let Some(known) = self.objects.remove(key) else { return };
        let Some(dag) = known.dag else { return };
        if let Some(keys) = self.by_dag.get_mut(&dag) {
            keys.remove(key);
            // Another object of this name may have waited for it.
            let others: Vec<ObjectKey> = keys.iter().cloned().collect();
            if others.is_empty() {
                self.by_dag.remove(&dag);
                self.served.remove(&dag);
            }
            others.iter().for_each(|other| self.queue.add(other, false, now));
        }
    }

    /// Takes in all objects that there are.
    pub fn listed(&mut self, heads: Vec<ObjectHead>, now: Instant) {
        let present: BTreeSet<ObjectKey> = heads.iter().map(|head| head.key.clone()).collect();
        let absent: Vec<ObjectKey> =
            self.objects.keys().filter(|key| !present.contains(key)).cloned().collect();
        absent.iter().for_each(|key| self.gone(key, now));
        heads.into_iter().for_each(|head| self.seen(head, now));
    }

    /// Takes in that a DAG of the server has changed.
    pub fn dag_changed(&mut self, name: &str, now: Instant) {
        for key in self.by_dag.get(name).into_iter().flatten() {
            self.queue.add(key, false, now);
        }
    }

    /// Takes in that any DAG of the server may have changed.
    pub fn dags_unknown(&mut self, now: Instant) {
        for key in self.objects.keys() {
            self.queue.add(key, false, now);
        }
    }

    /// Takes in the rates that DAGs of the server are served.
    pub fn dags_served(&mut self, rates: Vec<(String, u64)>, now: Instant) {
        for (name, rate) in rates {
            if self.by_dag.contains_key(&name)
                && self.served.insert(name.clone(), rate) != Some(rate)
            {
                self.dag_changed(&name, now);
            }
        }
    }

    /// The next object to be worked on, if a worker may begin now.
    pub fn next(&mut self, now: Instant) -> Option<ObjectKey> {
        self.queue.next(now)
    }

    /// Ends the work on an object.
    pub fn done(&mut self, key: &ObjectKey, result: WorkResult, now: Instant) {
        self.queue.done(key, result, now);
    }

    /// Time of the next object that becomes ready.
    pub fn next_time(&self) -> Option<Instant> {
        self.queue.next_time()
    }

    /// Drops what is kept of objects that have gone.
    pub fn clean(&mut self, now: Instant) {
        let objects = &self.objects;
        self.queue.forget_idle(|key| objects.contains_key(key), now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::dags::settings::DagControllerSettings;

    fn registry() -> Registry {
        let namespaces = [("shop", "acme"), ("shop-2", "acme"), ("bank", "globex")];
        let namespaces = namespaces.map(|(a, b)| (a.to_owned(), b.to_owned())).into();
        let settings = DagControllerSettings { namespaces, ..DagControllerSettings::default() };
        Registry::new(settings.tenant_rule().expect("valid"))
    }

    fn head(namespace: &str, name: &str, generation: i64) -> ObjectHead {
        ObjectHead {
            key: ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() },
            uid: "u".to_owned(),
            generation,
            is_deleting: false,
            has_finalizer: false,
        }
    }

    /// All that is worked on now, each ended at once.
    fn work(registry: &mut Registry, now: Instant) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(key) = registry.next(now) {
            registry.done(&key, WorkResult::Settled, now);
            all.push(key.to_string());
        }
        all
    }

    #[test]
    fn an_object_is_worked_on_when_it_or_its_dag_changes() {
        let (mut registry, now) = (registry(), Instant::now());
        registry.seen(head("shop", "web", 1), now);
        assert_eq!(work(&mut registry, now), ["shop/web"]);
        // The controller's own writes come back as the same head.
        registry.seen(head("shop", "web", 1), now);
        assert_eq!(work(&mut registry, now), [""; 0]);
        registry.seen(head("shop", "web", 2), now);
        assert_eq!(work(&mut registry, now), ["shop/web"]);
        registry.dag_changed("tenants/acme/dags/web", now);
        assert_eq!(work(&mut registry, now), ["shop/web"]);
        registry.dag_changed("tenants/globex/dags/web", now);
        assert_eq!(work(&mut registry, now), [""; 0]);
    }

    #[test]
    fn a_list_after_a_gap_finds_what_came_and_went() {
        let (mut registry, now) = (registry(), Instant::now());
        registry.listed(vec![head("shop", "web", 1), head("bank", "db", 1)], now);
        assert_eq!(work(&mut registry, now).len(), 2);
        registry.listed(vec![head("shop", "web", 1), head("shop", "new", 1)], now);
        assert_eq!(work(&mut registry, now), ["shop/new"]);
        registry.dag_changed("tenants/globex/dags/db", now);
        assert_eq!(work(&mut registry, now), [""; 0]);
        registry.clean(now + Duration::from_secs(60));
        registry.dags_unknown(now);
        let mut all = work(&mut registry, now);
        all.sort();
        assert_eq!(all, ["shop/new", "shop/web"]);
    }

    #[test]
    fn an_object_that_waits_for_a_name_is_worked_on_when_the_other_goes() {
        let (mut registry, now) = (registry(), Instant::now());
        registry.listed(vec![head("shop", "web", 1), head("shop-2", "web", 1)], now);
        assert_eq!(work(&mut registry, now).len(), 2);
        registry.gone(&head("shop", "web", 1).key, now);
        assert_eq!(work(&mut registry, now), ["shop-2/web"]);
    }

    #[test]
    fn served_rates_are_news_once() {
        let (mut registry, now) = (registry(), Instant::now());
        registry.seen(head("shop", "web", 1), now);
        assert_eq!(work(&mut registry, now).len(), 1);
        let rates = |rate| {
            vec![("tenants/acme/dags/web".to_owned(), rate), ("tenants/acme/dags/x".to_owned(), 5)]
        };
        registry.dags_served(rates(7), now);
        assert_eq!(work(&mut registry, now), ["shop/web"]);
        registry.dags_served(rates(7), now);
        assert_eq!(work(&mut registry, now), [""; 0]);
        assert_eq!(registry.served.len(), 1, "none of others");
        registry.gone(&head("shop", "web", 1).key, now);
        assert!(registry.served.is_empty());
    }
}
