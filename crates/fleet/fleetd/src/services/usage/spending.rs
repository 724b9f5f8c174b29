//! Money that tenants and projects with a budget have spent: what hosts counted this month × the operator's prices, as a host does for its
//! own tenants. The leader keeps the sums, so a host that does not answer takes nothing back.

use std::collections::BTreeMap;

use snic_api::convert::name;
use snic_api::error::ApiError;
use snic_api::usage::priced_count;
use snic_api::v1;
use snic_api::v1::{ErrorReason, UsageGrouping};
use snic_domain::{BudgetLevel, MonthBudget, TenantId};
use snic_fleet::ProjectId;
use snic_fleet::protocol::{
    Budgeted, FleetCommand, FleetItem, FleetList, FleetProject, FleetSpending, FleetTenant,
    SPENDING_NOTES_MAX, SpendingNote, SpendingView,
};
use snic_usage::{Meter, Money, PriceVersion, PricedCount, Prices, month};
use tonic::Status;

use super::hosts::fleet;
use super::{Services, UsageQuestion, now, timestamp};

/// Levels of budgets when they were looked at last.
#[derive(Debug, Default)]
pub(crate) struct SpendingLevels(BTreeMap<Budgeted, BudgetLevel>);

impl SpendingLevels {
    /// Says in the log where a level is another one.
    fn follow(&mut self, of: Budgeted, view: Option<&SpendingView>) {
        let Some(SpendingView { spending, level, .. }) = view else {
            self.0.remove(&of);
            return;
        };
        let before = self.0.insert(of.clone(), *level).unwrap_or(BudgetLevel::Within);
        if before == *level {
            return;
        }
        let of = match of {
            Budgeted::Tenant(id) => format!("tenants/{id}"),
            Budgeted::Project(id) => format!("projects/{id}"),
        };
        let spent = spending.spent.map(|micros| MonthBudget::from_micros(micros).to_string());
        let (spent, currency) = (spent.unwrap_or_default(), &spending.currency);
        match level {
            BudgetLevel::Within => tracing::info!(of, spent, currency, "its budget is free again"),
            BudgetLevel::Warned => {
                tracing::warn!(of, spent, currency, "it has spent most of its budget")
            }
            BudgetLevel::Reached => tracing::warn!(of, spent, currency, "it has spent its budget"),
            BudgetLevel::Unknown => {
                tracing::warn!(of, "there are no prices, so what it has spent is not known");
            }
        }
    }
}

/// Money, and whether a host did not say what it knows.
type Spent = (Money, bool);

impl Services {
    /// # Errors
    /// A budget is set, and this replica has no prices, so it would limit nothing.
    pub(crate) fn check_budget(&self, field: &str, budget: MonthBudget) -> Result<(), ApiError> {
        if budget.is_unlimited() || self.0.parts.prices.read().is_some() {
            return Ok(());
        }
        let text = "there are no prices on this replica, so a budget would limit nothing; name a price file in \
                    budgets.prices of the settings of all replicas first";
        let field = format!("{field}.month_budget_micros");
        Err(ApiError::in_field(ErrorReason::InvalidField, &field, text))
    }

    /// Adds up what was spent of all budgets and tells the leader, which this replica is.
    ///
    /// # Errors
    /// The leader does not answer.
    pub(crate) async fn look_at_budgets(
        &self,
        levels: &mut SpendingLevels,
    ) -> Result<(), ApiError> {
        let projects = self.budgeted_projects(levels).await?;
        let tenants = self.followed_tenants(&projects, levels).await?;
        if projects.is_empty() && tenants.is_empty() {
            return Ok(());
        }
        let (prices, to) = (self.0.parts.prices.read(), now());
        let month = month(to);
        let spending = |spent: Option<Money>| FleetSpending {
            month,
            spent: spent.map(Money::micros),
            currency: prices.as_ref().map(|of| of.currency.clone()).unwrap_or_default(),
        };
        let mut of_projects: BTreeMap<&ProjectId, Spent> = BTreeMap::new();
        let mut of_tenants = Vec::new();
        for tenant in &tenants {
            let id = &tenant.tenant.id;
            let spent = match &prices {
                Some(prices) => match self.spent(tenant, (month.0, to), prices).await {
                    Ok(spent) => Some(spent),
                    Err(status) => {
                        tracing::warn!(tenant = %id, %status, "what it has spent is not known this time");
                        Some((Money::default(), true))
                    }
                },
                None => None,
            };
            if let Some(project) = &tenant.project {
                let sum = of_projects.entry(project).or_default();
                let (money, is_partial) = spent.unwrap_or_default();
                sum.0 += money;
                sum.1 |= is_partial;
            }
            of_tenants.push(SpendingNote {
                of: Budgeted::Tenant(id.clone()),
                serial: tenant.meta.serial,
                spending: spending(spent.map(|(money, _)| money)),
                is_partial: spent.is_some_and(|(_, is_partial)| is_partial),
            });
        }
        let notes = projects.iter().map(|(id, of)| {
            let (money, is_partial) = of_projects.get(id).copied().unwrap_or_default();
            let spending = spending(prices.as_ref().map(|_| money));
            let of_project = Budgeted::Project(id.clone());
            SpendingNote { of: of_project, serial: of.meta.serial, spending, is_partial }
        });
        let notes: Vec<SpendingNote> = notes.chain(of_tenants).collect();
        for some in notes.chunks(SPENDING_NOTES_MAX) {
            let command = FleetCommand::NoteSpending(some.to_vec());
            self.ask(&fleet(), None, command).await?;
        }
        Ok(())
    }

    async fn budgeted_projects(
        &self,
        levels: &mut SpendingLevels,
    ) -> Result<BTreeMap<ProjectId, FleetProject>, ApiError> {
        let (items, _) = self.piece(&fleet(), &FleetList::Projects, None, usize::MAX).await?;
        let mut found = BTreeMap::new();
        for item in items {
            let FleetItem::Project(of) = item else { continue };
            levels.follow(Budgeted::Project(of.project.clone()), of.spending.as_ref());
            if !of.quota.month_budget.is_unlimited() {
                found.insert(of.project.clone(), of);
            }
        }
        Ok(found)
    }

    /// Tenants with a budget, those of projects with one, and those whose bursts are off.
    async fn followed_tenants(
        &self,
        projects: &BTreeMap<ProjectId, FleetProject>,
        levels: &mut SpendingLevels,
    ) -> Result<Vec<FleetTenant>, ApiError> {
        let (items, _) = self.piece(&fleet(), &FleetList::Tenants, None, usize::MAX).await?;
        let mut found = Vec::new();
        for item in items {
            let FleetItem::Tenant(of) = item else { continue };
            levels.follow(Budgeted::Tenant(of.tenant.id.clone()), of.spending.as_ref());
            let is_in = of.project.as_ref().is_some_and(|project| projects.contains_key(project));
            if is_in || of.is_burst_off || !of.tenant.quota.month_budget.is_unlimited() {
                found.push(of);
            }
        }
        Ok(found)
    }

    /// Money that a tenant has spent in a range, by the prices of each part of it.
    async fn spent(
        &self,
        tenant: &FleetTenant,
        range: (u64, u64),
        prices: &Prices,
    ) -> Result<Spent, Status> {
        let created = tenant.meta.created.as_nanos() / 1_000_000_000;
        let (mut money, mut is_partial) = (Money::default(), false);
        for (version, range) in priced_parts(prices, range) {
            let Some(question) = question_of(&tenant.tenant.id, created, range) else { continue };
            let mut merged = self.merged(&question).await?;
            if has_price_for_calls(version) {
                merged.add_calls(&question, self.counted_calls(&question).await?.entries);
            }
            is_partial |= !merged.unreachable(&question).is_empty();
            for entry in merged.into_entries() {
                money += version.cost_by(|count| priced_count(&entry, count));
            }
        }
        Ok((money, is_partial))
    }
}

/// Whether calls cost anything: those that replicas have counted are read day by day.
fn has_price_for_calls(version: &PriceVersion) -> bool {
    let of_calls = PricedCount::Meter(Meter::ApiCalls);
    version.prices().iter().any(|(meter, price)| meter.count == of_calls && !price.is_zero())
}

/// Parts of a range that have one version of the prices each; nothing has a price before the first.
fn priced_parts(prices: &Prices, (from, to): (u64, u64)) -> Vec<(&PriceVersion, (u64, u64))> {
    let versions = prices.versions();
    let end = |at: usize| versions.get(at + 1).map_or(to, |next| next.from().min(to));
    let parts = versions.iter().enumerate();
    let parts = parts.map(|(at, version)| (version, (version.from().max(from), end(at))));
    parts.filter(|(_, (from, to))| from < to).collect()
}

/// Question about what a tenant that was created in a second has used in a range; `None` if the range is over by then.
fn question_of(tenant: &TenantId, created: u64, (from, to): (u64, u64)) -> Option<UsageQuestion> {
    let born = Some(created).filter(|born| *born > from);
    if born.is_some_and(|born| born >= to) {
        return None;
    }
    let to_hosts = v1::ListUsageRequest {
        tenant: name::of_tenant(tenant),
        start_time: Some(timestamp(born.unwrap_or(from))),
        first_interval_time: born.map(|_| timestamp(from)),
        end_time: Some(timestamp(to)),
        by: UsageGrouping::Tenant.into(),
        ..v1::ListUsageRequest::default()
    };
    Some(UsageQuestion {
        to_hosts,
        by: UsageGrouping::Tenant,
        own: None,
        host: None,
        projects: None,
        range: (from, to),
        born,
        created: Some(created),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-01T00:00:00Z
    const NOVEMBER: u64 = 1_793_491_200;
    const HOUR: u64 = 3_600;

    fn prices() -> Prices {
        let text = r#"
            currency = "EUR"
            provider = "Example"
            [[versions]]
            name = "first"
            from = 2026-11-01T01:00:00Z
            prices = { loads = "1" }
            [[versions]]
            name = "second"
            from = 2026-11-01T03:00:00Z
            prices = { loads = "2" }
        "#;
        Prices::parse(text).expect("valid")
    }

    fn parts(range: (u64, u64)) -> Vec<(String, u64, u64)> {
        let prices = prices();
        let parts = priced_parts(&prices, (NOVEMBER + range.0 * HOUR, NOVEMBER + range.1 * HOUR));
        let hours = |second: u64| (second - NOVEMBER) / HOUR;
        parts
            .into_iter()
            .map(|(of, (from, to))| (of.name.clone(), hours(from), hours(to)))
            .collect()
    }

    #[test]
    fn each_part_of_a_range_has_one_price() {
        let part = |name: &str, from, to| (name.to_owned(), from, to);
        assert_eq!(parts((0, 1)), [], "nothing has a price yet");
        assert_eq!(parts((0, 2)), [part("first", 1, 2)]);
        assert_eq!(parts((0, 5)), [part("first", 1, 3), part("second", 3, 5)]);
        assert_eq!(parts((3, 4)), [part("second", 3, 4)]);
        assert_eq!(parts((4, 4)), []);
    }

    #[test]
    fn nothing_counts_that_an_earlier_tenant_of_the_name_used() {
        let tenant = TenantId::new("acme").expect("an id");
        let of = |born: u64| {
            let question = question_of(&tenant, born, (1_000, 2_000))?.to_hosts;
            let second = |time: Option<prost_types::Timestamp>| time.map(|time| time.seconds);
            Some((second(question.start_time)?, second(question.first_interval_time)))
        };
        assert_eq!(of(900), Some((1_000, None)));
        assert_eq!(of(1_000), Some((1_000, None)));
        assert_eq!(of(1_500), Some((1_500, Some(1_000))));
        assert_eq!(of(2_000), None, "it was created later");
    }
}
