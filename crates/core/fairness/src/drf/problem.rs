//! The input of DRF, checked once so that the solvers cannot overflow.

use smallvec::SmallVec;

use crate::Weight;

/// Largest capacity, demand, quota, numerator or denominator: 2^48. Products of two of them and a
/// weight stay below 2^106, so 128-bit sums over all users do not overflow.
pub const AMOUNT_MAX: u64 = 1 << 48;
/// Most users of one problem: 2^17. With more, the sum of the rates could exceed 127 bits.
pub const USERS_MAX: usize = 1 << 17;
/// Most resources of one problem; FPGA area and on-board memory are two. Each resource costs one pass
/// over all users when it fills up.
pub const RESOURCES_MAX: usize = 32;

/// One amount for each resource.
pub type Amounts = SmallVec<[u64; 4]>;

/// A fraction from 0 to [`AMOUNT_MAX`], not necessarily in lowest terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fraction {
    numerator: u64,
    denominator: u64,
}

/// Two numbers that do not form a [`Fraction`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{numerator}/{denominator} is not a valid cap: the denominator must be 1 to {AMOUNT_MAX}, \
     the numerator 0 to {AMOUNT_MAX}"
)]
pub struct InvalidFraction {
    pub numerator: u64,
    pub denominator: u64,
}

impl Fraction {
    /// `numerator / denominator`.
    ///
    /// # Errors
    ///
    /// [`InvalidFraction`] if either number is over [`AMOUNT_MAX`] or the denominator is zero.
    pub fn new(numerator: u64, denominator: u64) -> Result<Self, InvalidFraction> {
        if numerator > AMOUNT_MAX || !(1..=AMOUNT_MAX).contains(&denominator) {
            return Err(InvalidFraction { numerator, denominator });
        }
        Ok(Self { numerator, denominator })
    }

    pub const fn numerator(self) -> u64 {
        self.numerator
    }

    /// The denominator; never zero.
    pub const fn denominator(self) -> u64 {
        self.denominator
    }

    fn is_less_than(self, other: Self) -> bool {
        let product = |a, b| u128::from(a) * u128::from(b);
        product(self.numerator, other.denominator) < product(other.numerator, self.denominator)
    }
}

/// One user of a problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub weight: Weight,
    /// Demand of one task on each resource, in the units of the capacities.
    pub demand: Amounts,
    /// Most tasks that it can use; `None` for no limit. Not necessarily whole: half the requested
    /// bandwidth is half a task.
    pub tasks_max: Option<Fraction>,
    /// Most that it may have of each resource; empty for no quotas.
    pub quota: SmallVec<[Option<u64>; 4]>,
}

impl User {
    /// A user of weight 1 without cap or quota.
    pub fn new(demand: &[u64]) -> Self {
        Self { weight: Weight::ONE, demand: demand.into(), tasks_max: None, quota: SmallVec::new() }
    }

    /// The same with this weight.
    pub fn weighted(self, weight: Weight) -> Self {
        Self { weight, ..self }
    }

    /// The same with at most this many tasks.
    pub fn capped(self, tasks_max: Fraction) -> Self {
        Self { tasks_max: Some(tasks_max), ..self }
    }

    /// The same with a quota for each resource.
    pub fn with_quota(self, quota: &[Option<u64>]) -> Self {
        Self { quota: quota.into(), ..self }
    }

    /// The tightest of the cap and the quotas, in tasks, and which one it is. On a tie the cap wins,
    /// then the first resource.
    #[inline]
    pub(super) fn tightest_cap(&self) -> Option<(Fraction, UserLimit)> {
        let mut tightest = self.tasks_max.map(|cap| (cap, UserLimit::OwnCap));
        for (k, (quota, demand)) in self.quota.iter().zip(&self.demand).enumerate() {
            let Some(quota) = quota.filter(|_| *demand > 0) else { continue };
            let tasks = Fraction { numerator: quota, denominator: *demand };
            if tightest.is_none_or(|(least, _)| tasks.is_less_than(least)) {
                tightest = Some((tasks, UserLimit::Quota(k)));
            }
        }
        tightest
    }
}

/// Limit of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UserLimit {
    /// This resource, which is full or has no capacity.
    Capacity(usize),
    /// Its own cap: it has all that it can use.
    OwnCap,
    /// Its quota on this resource.
    Quota(usize),
    /// Its demand, which is zero everywhere: it holds nothing and its share is zero.
    AsksNothing,
}

/// Capacities and users, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrfProblem {
    capacities: Amounts,
    users: Vec<User>,
}

/// Why a problem is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidProblem {
    /// Too many users.
    #[error("{count} users exceed the limit of {USERS_MAX}")]
    TooManyUsers {
        /// The number given.
        count: usize,
    },
    /// Too many resources.
    #[error("{count} resources exceed the limit of {RESOURCES_MAX}")]
    TooManyResources {
        /// The number given.
        count: usize,
    },
    /// The number of demands or quotas differs from the number of resources.
    #[error("user {user} has {given} {what} for {resources} resources; expected one for each")]
    WrongLength {
        /// Index of the user.
        user: usize,
        /// "demands" or "quotas".
        what: &'static str,
        /// The number given.
        given: usize,
        /// Number of resources.
        resources: usize,
    },
    /// A capacity that could overflow.
    #[error(
        "capacity {amount} of resource {resource} exceeds {AMOUNT_MAX}; choose a larger unit for it"
    )]
    CapacityTooLarge {
        /// Index of the resource.
        resource: usize,
        amount: u64,
    },
    /// A demand or quota that could overflow.
    #[error(
        "user {user}: {amount} of resource {resource} exceeds {AMOUNT_MAX}; choose a larger unit"
    )]
    AmountTooLarge {
        /// Index of the user.
        user: usize,
        /// Index of the resource.
        resource: usize,
        /// The demand or quota.
        amount: u64,
    },
}

impl DrfProblem {
    /// Checks lengths and sizes. No users, no resources, zero capacities and zero demands are all
    /// valid.
    ///
    /// # Errors
    ///
    /// [`InvalidProblem`] with the first limit that is exceeded, or the first list of a wrong length.
    pub fn new(capacities: &[u64], users: Vec<User>) -> Result<Self, InvalidProblem> {
        if users.len() > USERS_MAX {
            return Err(InvalidProblem::TooManyUsers { count: users.len() });
        }
        if capacities.len() > RESOURCES_MAX {
            return Err(InvalidProblem::TooManyResources { count: capacities.len() });
        }
        if let Some(resource) = capacities.iter().position(|&c| c > AMOUNT_MAX) {
            let amount = capacities[resource];
            return Err(InvalidProblem::CapacityTooLarge { resource, amount });
        }
        for (index, user) in users.iter().enumerate() {
            check_user(index, user, capacities.len())?;
        }
        Ok(Self { capacities: capacities.into(), users })
    }

    /// Replaces the demand of `user`; its weight, cap and quotas stay. The demand is checked as in
    /// [`Self::new`]; a user beyond the last is ignored.
    ///
    /// # Errors
    ///
    /// [`InvalidProblem`] if `demand` has a wrong length or an amount over [`AMOUNT_MAX`]. Nothing has
    /// changed then.
    pub fn set_demand(&mut self, user: usize, demand: &[u64]) -> Result<(), InvalidProblem> {
        let resources = self.capacities.len();
        if demand.len() != resources {
            let given = demand.len();
            return Err(InvalidProblem::WrongLength { user, what: "demands", given, resources });
        }
        if let Some(resource) = demand.iter().position(|amount| *amount > AMOUNT_MAX) {
            let amount = demand[resource];
            return Err(InvalidProblem::AmountTooLarge { user, resource, amount });
        }
        if let Some(user) = self.users.get_mut(user) {
            user.demand.copy_from_slice(demand);
        }
        Ok(())
    }

    /// Capacity of each resource.
    pub fn capacities(&self) -> &[u64] {
        &self.capacities
    }

    pub fn users(&self) -> &[User] {
        &self.users
    }

    /// The dominant resource of `user`: the one of which a task takes the largest fraction; the first
    /// of equals, `None` if it demands nothing. A resource without capacity dominates.
    pub fn dominant(&self, user: usize) -> Option<usize> {
        dominant_of(&self.users[user].demand, &self.capacities)
    }
}

/// Index of the dominant resource of a demand, as in [`DrfProblem::dominant`].
#[inline]
pub(super) fn dominant_of(demand: &[u64], capacities: &[u64]) -> Option<usize> {
    let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
    let mut dominant = None;
    for (k, amount) in demand.iter().enumerate().filter(|(_, amount)| **amount > 0) {
        let more =
            |best: usize| product(*amount, capacities[best]) > product(demand[best], capacities[k]);
        if dominant.is_none_or(more) {
            dominant = Some(k);
        }
    }
    dominant
}

fn check_user(index: usize, user: &User, resources: usize) -> Result<(), InvalidProblem> {
    let lengths = [("demands", user.demand.len()), ("quotas", user.quota.len())];
    for (what, given) in lengths {
        if given != resources && !(given == 0 && what == "quotas") {
            return Err(InvalidProblem::WrongLength { user: index, what, given, resources });
        }
    }
    let quotas = user.quota.iter().enumerate().filter_map(|(k, q)| Some((k, (*q)?)));
    let demands = user.demand.iter().copied().enumerate();
    match demands.chain(quotas).find(|&(_, amount)| amount > AMOUNT_MAX) {
        Some((resource, amount)) => {
            Err(InvalidProblem::AmountTooLarge { user: index, resource, amount })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dominant_resource_is_the_largest_fraction_and_the_first_of_equals() {
        let users = vec![
            User::new(&[1, 4]),
            User::new(&[3, 1]),
            User::new(&[1, 2]),
            User::new(&[0, 0]),
            User::new(&[AMOUNT_MAX, AMOUNT_MAX]),
        ];
        let problem = DrfProblem::new(&[9, 18], users).expect("valid");
        let dominant: Vec<_> = (0..5).map(|user| problem.dominant(user)).collect();
        assert_eq!(dominant, [Some(1), Some(0), Some(0), None, Some(0)]);
    }

    #[test]
    fn a_resource_without_capacity_dominates() {
        let users = vec![User::new(&[5, 1, 1]), User::new(&[5, 0, 0])];
        let problem = DrfProblem::new(&[5, 0, 0], users).expect("valid");
        assert_eq!((problem.dominant(0), problem.dominant(1)), (Some(1), Some(0)));
    }

    #[test]
    fn the_tightest_cap_wins_and_the_own_cap_wins_ties() {
        let fraction = |n, d| Fraction::new(n, d).expect("valid");
        let user = User::new(&[2, 3, 0]).with_quota(&[Some(4), Some(3), Some(0)]);
        let (cap, limit) = user.tightest_cap().expect("has quotas");
        assert_eq!((cap, limit), (fraction(3, 3), UserLimit::Quota(1)));
        let (_, limit) = user.clone().capped(fraction(2, 2)).tightest_cap().expect("has a cap");
        assert_eq!(limit, UserLimit::OwnCap);
        let (_, limit) = user.capped(fraction(3, 2)).tightest_cap().expect("has a cap");
        assert_eq!(limit, UserLimit::Quota(1));
        assert_eq!(User::new(&[1]).tightest_cap(), None);
    }

    #[test]
    fn errors_name_the_user_and_what_to_do() {
        let over = AMOUNT_MAX + 1;
        let text = |capacities: &[u64], user: User| {
            DrfProblem::new(capacities, vec![User::new(&vec![1; capacities.len()]), user])
                .expect_err("invalid")
                .to_string()
        };
        assert_eq!(
            text(&[1, 2], User::new(&[1])),
            "user 1 has 1 demands for 2 resources; expected one for each"
        );
        assert_eq!(
            text(&[1], User::new(&[1]).with_quota(&[None, None])),
            "user 1 has 2 quotas for 1 resources; expected one for each"
        );
        assert!(text(&[over], User::new(&[1])).starts_with("capacity 281474976710657"));
        assert!(text(&[1], User::new(&[over])).starts_with("user 1: 281474976710657"));
        assert!(text(&[1], User::new(&[1]).with_quota(&[Some(u64::MAX)])).contains("resource 0"));
        let many = vec![User::new(&[]); USERS_MAX + 1];
        assert_eq!(
            DrfProblem::new(&[], many),
            Err(InvalidProblem::TooManyUsers { count: USERS_MAX + 1 })
        );
        assert!(DrfProblem::new(&[1; RESOURCES_MAX + 1], vec![]).is_err());
        assert!(
            Fraction::new(1, 0).expect_err("no").to_string().starts_with("1/0 is not a valid cap")
        );
        assert!(Fraction::new(over, 1).is_err() && Fraction::new(1, over).is_err());
    }
}
