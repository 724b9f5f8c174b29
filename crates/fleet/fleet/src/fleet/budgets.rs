//! Budgets of tenants and projects. The leader is told now and then what was spent; here that becomes levels, refusals, and what hosts
//! are told of tenants whose bursts are off.

use snic_domain::{BudgetAction, BudgetLevel, BudgetPolicy, MonthBudget, TenantId};

use super::{Fleet, RequestContext};
use crate::ProjectId;
use crate::journal::FleetStep;
use crate::protocol::{
    Budgeted, Denied, FleetItem, FleetReply, FleetSpending, SPENDING_NOTES_MAX, SpendingNote,
    SpendingView,
};
use crate::records::{FleetTenantRecord, ProjectRecord};

impl Fleet {
    pub(super) fn budget_policy(&self) -> BudgetPolicy {
        self.policies.as_ref().map(|of| of.value().budgets).unwrap_or_default()
    }

    /// Stores what was spent, where it differs by enough, and tells hosts of tenants whose bursts are to be off or on again.
    pub(super) fn note_spending(
        &mut self,
        turn: &RequestContext,
        notes: &[SpendingNote],
        step: &mut FleetStep,
    ) -> Result<FleetReply, Denied> {
        let count = notes.len();
        if count > SPENDING_NOTES_MAX {
            let rule = format!("{count} notes of spending; at most {SPENDING_NOTES_MAX} at once");
            return Err(Denied::Invalid(rule));
        }
        for note in notes.iter().filter(|_| !turn.is_dry) {
            match &note.of {
                Budgeted::Tenant(id) => self.note_of_tenant(turn, id, note, step),
                Budgeted::Project(project) => self.note_of_project(project, note, step),
            }
        }
        Ok(FleetReply::Done)
    }

    fn note_of_project(&mut self, project: &ProjectId, note: &SpendingNote, step: &mut FleetStep) {
        let Some(record) = self.tenants.project(project) else { return };
        let of = record.value();
        let new = FleetSpending::after(of.spending.as_ref(), note);
        let is_meant = of.meta.serial == note.serial && !of.quota.month_budget.is_unlimited();
        if is_meant && self.is_news(&new, of.spending.as_ref(), of.quota.month_budget) {
            let mut record = record.clone();
            record.value_mut().spending = Some(new);
            self.put_project(record, step);
        }
    }

    fn note_of_tenant(
        &mut self,
        turn: &RequestContext,
        id: &TenantId,
        note: &SpendingNote,
        step: &mut FleetStep,
    ) {
        let Some(record) = self.tenants.tenant(id) else { return };
        let of = record.value();
        if of.meta.serial != note.serial {
            return;
        }
        let budget = of.tenant.quota.month_budget;
        let spending = FleetSpending::after(of.spending.as_ref(), note);
        let is_news =
            !budget.is_unlimited() && self.is_news(&spending, of.spending.as_ref(), budget);
        let mut new = record.clone();
        if is_news {
            new.value_mut().spending = Some(spending);
        }
        let off = self.burst_is_off(turn, new.value());
        let is_switched = off != new.value().is_burst_off;
        if is_switched {
            new.value_mut().is_burst_off = off;
            new.value_mut().number = self.journal.next_serial();
        }
        if is_news || is_switched {
            self.put_tenant(new, step);
        }
        if is_switched {
            self.send_to_hosts(id, step);
        }
    }

    fn is_news(
        &self,
        new: &FleetSpending,
        before: Option<&FleetSpending>,
        budget: MonthBudget,
    ) -> bool {
        let policy = self.budget_policy();
        let level = |of| FleetSpending::level(of, budget, policy, self.now);
        new.is_news(before, budget) || level(Some(new)) != level(before)
    }

    /// Levels of the budgets of a tenant and of its project, of those that have one.
    fn levels<'a>(
        &'a self,
        turn: &RequestContext,
        of: &'a FleetTenantRecord,
    ) -> (Option<BudgetLevel>, Option<(&'a ProjectRecord, BudgetLevel)>) {
        let (policy, budget) = (self.budget_policy(), of.tenant.quota.month_budget);
        let own = FleetSpending::level(of.spending.as_ref(), budget, policy, turn.now);
        let project = of.project.as_ref().and_then(|project| self.tenants.project(project));
        let project = project.and_then(|record| {
            let (of, budget) = (record.value(), record.value().quota.month_budget);
            let level = FleetSpending::level(of.spending.as_ref(), budget, policy, turn.now)?;
            Some((of, level))
        });
        (own, project)
    }

    /// Whether hosts are to give a tenant's DAGs their promises and no more.
    pub(super) fn burst_is_off(&self, turn: &RequestContext, of: &FleetTenantRecord) -> bool {
        let (own, project) = self.levels(turn, of);
        let is_over =
            own.into_iter().chain(project.map(|(_, level)| level)).any(BudgetLevel::is_over);
        is_over && self.budget_policy().at_limit == BudgetAction::BurstOff
    }

    /// # Errors
    /// The operator's policy is that nothing new is promised once a budget is spent, and that of the tenant or of its project is, or
    /// nobody knows.
    pub(super) fn check_budgets(
        &self,
        turn: &RequestContext,
        tenant: &TenantId,
    ) -> Result<(), Denied> {
        if self.budget_policy().at_limit != BudgetAction::NoNewDags {
            return Ok(());
        }
        let Some(of) = self.tenants.tenant(tenant).map(|record| record.value()) else {
            return Ok(());
        };
        let (own, project) = self.levels(turn, of);
        let month_end = |of: Option<&FleetSpending>| of.map_or(0, |of| of.month.1);
        match own {
            Some(BudgetLevel::Reached) => {
                let spending = of.spending.as_ref();
                let currency = spending.map(|of| of.currency.clone()).unwrap_or_default();
                let money = |micros| format!("{} {currency}", MonthBudget::from_micros(micros));
                return Err(Denied::TenantBudget {
                    tenant: tenant.clone(),
                    budget: money(of.tenant.quota.month_budget.micros().unwrap_or_default()),
                    spent: money(spending.and_then(|of| of.spent).unwrap_or_default()),
                    until: month_end(spending),
                });
            }
            Some(BudgetLevel::Unknown) => {
                return Err(Denied::BudgetUnknown(format!("tenants/{tenant}")));
            }
            Some(BudgetLevel::Within | BudgetLevel::Warned) | None => {}
        }
        match project {
            Some((of, BudgetLevel::Reached)) => Err(Denied::ProjectBudget {
                project: of.project.clone(),
                until: month_end(of.spending.as_ref()),
            }),
            Some((of, BudgetLevel::Unknown)) => {
                Err(Denied::BudgetUnknown(format!("projects/{}", of.project)))
            }
            Some((_, BudgetLevel::Within | BudgetLevel::Warned)) | None => Ok(()),
        }
    }

    /// Levels of all budgets of which anything is known, in no order.
    pub(super) fn budget_levels(&self) -> Vec<BudgetLevel> {
        let policy = self.budget_policy();
        let level = |(spending, budget)| FleetSpending::level(spending, budget, policy, self.now);
        self.tenants.spending().filter_map(level).collect()
    }

    /// A tenant, as it is shown.
    pub(super) fn tenant_item(&self, id: &TenantId) -> Option<FleetItem> {
        let mut view = self.tenants.tenant_view(id, self.capacity)?;
        let spending = self.tenants.tenant(id).and_then(|of| of.value().spending.as_ref());
        view.spending = self.spending_view(spending, view.tenant.quota.month_budget);
        Some(FleetItem::Tenant(view))
    }

    /// A project, as it is shown.
    pub(super) fn project_item(&self, project: &ProjectId) -> Option<FleetItem> {
        let mut view = self.tenants.project_view(project)?;
        let spending = self.tenants.project(project).and_then(|of| of.value().spending.as_ref());
        view.spending = self.spending_view(spending, view.quota.month_budget);
        Some(FleetItem::Project(view))
    }

    /// Spending of a budget as it is shown; `None` without a budget, and before it was looked at.
    fn spending_view(
        &self,
        spending: Option<&FleetSpending>,
        budget: MonthBudget,
    ) -> Option<SpendingView> {
        let policy = self.budget_policy();
        let level = FleetSpending::level(spending, budget, policy, self.now)?;
        let second = self.now.as_nanos() / 1_000_000_000;
        let spending = spending.filter(|of| second < of.month.1)?.clone();
        Some(SpendingView { spending, level, at_limit: policy.at_limit })
    }
}
