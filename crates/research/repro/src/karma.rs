//! Karma (Vuppalapati et al., OSDI '23): max-min fairness that remembers. A user that leaves some of its guaranteed part
//! to others earns credits, and where more is wanted than there is, whoever has most credits is served first.

/// The memory of one resource of equal slices.
#[derive(Debug, Clone)]
pub struct Karma {
    /// Slices that each user gets when it wants them.
    guaranteed: u64,
    /// Slices that belong to nobody.
    shared: u64,
    /// Slices that each user may still borrow.
    credits: Vec<u64>,
}

impl Karma {
    /// Users with so many credits each. Of the shared slices each user is given an equal part in credits every epoch.
    pub fn new(users: usize, guaranteed: u64, shared: u64, credits: u64) -> Self {
        Self { guaranteed, shared, credits: vec![credits; users] }
    }

    pub fn credits(&self) -> &[u64] {
        &self.credits
    }

    /// Slices of each user in an epoch with these demands. Ties go to the user with the lower number.
    pub fn allocate(&mut self, demands: &[u64]) -> Vec<u64> {
        let free = self.shared / self.credits.len().max(1) as u64;
        self.credits.iter_mut().for_each(|credits| *credits += free);
        let mut got: Vec<u64> = demands.iter().map(|want| (*want).min(self.guaranteed)).collect();
        let mut donated: Vec<u64> = got.iter().map(|got| self.guaranteed - got).collect();
        let mut shared = self.shared;
        loop {
            let wants = |user: &usize| got[*user] < demands[*user] && self.credits[*user] > 0;
            let richest = (0..got.len()).rev().filter(wants).max_by_key(|user| self.credits[*user]);
            let Some(borrower) = richest else { return got };
            let gives = |user: &usize| donated[*user] > 0;
            match (0..got.len()).filter(gives).min_by_key(|user| self.credits[*user]) {
                Some(donor) => {
                    donated[donor] -= 1;
                    self.credits[donor] += 1;
                }
                None if shared > 0 => shared -= 1,
                None => return got,
            }
            self.credits[borrower] -= 1;
            got[borrower] += 1;
        }
    }
}
