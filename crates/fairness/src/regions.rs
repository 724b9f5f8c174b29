//! From fractional area shares to whole regions, by largest remainder.
//!
//! A user entitled to 2.4 regions gets two or three of its own. Where it gets two, the 0.4 are
//! served by sharing somebody's region; where three, 0.6 of the third are there to be shared. Ties
//! go to the lower position (the lower id).

use std::cmp::Ordering;

use num_rational::BigRational;
use num_traits::{Signed, Zero};

use crate::drf::Share;

/// Bits of a remainder that count when two are compared: more than there are users to tell apart,
/// few enough that [`NOISE_BITS`] cannot reach them.
const REMAINDER_BITS: u32 = 20;
/// A fraction of a region below 2^-30 is taken for the rounding of a share, not for a claim: shares
/// are exact to 2^-40 or so, and there are at most [`REGIONS_MAX`] regions.
const NOISE_BITS: u32 = 30;

/// Most regions in one apportionment: 1024, far over any card. More would turn
/// the rounding of shares into claims on regions.
pub const REGIONS_MAX: u32 = 1 << 10;

/// What one user gets of the regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Regions {
    /// Regions of its own.
    pub own: u32,
    /// What it is entitled to beyond those, as a fraction of one region: to be served by sharing.
    pub shared: Share,
    /// What of its own regions is beyond its entitlement: to be offered to others.
    pub spare: Share,
}

/// Why regions cannot be divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RegionsError {
    /// The shares sum to more than everything.
    #[error("the shares are {entitled} whole regions already, and there are {regions}")]
    OverSubscribed {
        /// The sum of the whole parts.
        entitled: u64,
        /// How many regions there are.
        regions: u32,
    },
    /// More regions than can be computed with.
    #[error("{regions} regions are more than the {REGIONS_MAX} that can be divided at once")]
    TooManyRegions {
        /// How many.
        regions: u32,
    },
    /// A share below zero or above one.
    #[error("the share of user {user} is not between 0 and 1")]
    NotAShare {
        /// Position of the user.
        user: usize,
    },
}

/// An entitlement: whole regions, and the rest of one.
struct Entitlement {
    whole: u32,
    rest: Share,
}

/// Divides `regions` by the users' `shares` of all of them. Uses as many regions as the shares
/// need together (the sum, rounded up), never more than there are; a user gets its whole part, and
/// one more while its remainder is among the largest. Remainders that agree in 20 bits are ties;
/// where the true remainders are equal fractions with a denominator below 512, they always agree.
///
/// ```
/// use snic_fairness::{drf::Share, regions};
/// let halves = [Share::from_ratio(1, 2); 2];
/// let got = regions::divide(&halves, 5)?;
/// assert_eq!((got[0].own, got[1].own), (3, 2));
/// assert_eq!(got[1].shared, Share::from_ratio(1, 2));
/// # Ok::<(), regions::RegionsError>(())
/// ```
///
/// # Errors
///
/// [`RegionsError`] where there are more than [`REGIONS_MAX`] regions, or the shares sum to more
/// whole regions than there are.
pub fn divide(shares: &[Share], regions: u32) -> Result<Vec<Regions>, RegionsError> {
    check_count(regions)?;
    let one = u128::from(Share::ONE.raw());
    let noise = one >> NOISE_BITS;
    let entitled: Vec<_> = shares
        .iter()
        .map(|share| {
            let product = u128::from(share.raw()) * u128::from(regions);
            let whole = (product + noise) / one;
            let rest = product.saturating_sub(whole * one);
            Entitlement { whole: whole as u32, rest: Share::from_raw(rest as u64) }
        })
        .collect();
    let rests: u128 = entitled.iter().map(|e| u128::from(e.rest.raw())).sum();
    let needed = rests.saturating_sub(noise).div_ceil(one);
    let rounded = |user: usize| {
        let dropped = Share::ONE.raw().trailing_zeros() - REMAINDER_BITS;
        (entitled[user].rest.raw() + (1 << (dropped - 1))) >> dropped
    };
    apportion(&entitled, regions, needed, |a, b| rounded(a).cmp(&rounded(b)))
}

/// The same for exact shares; remainders are compared exactly.
///
/// # Errors
///
/// As [`divide`], and where a share is not between 0 and 1.
pub fn divide_exact(shares: &[BigRational], regions: u32) -> Result<Vec<Regions>, RegionsError> {
    check_count(regions)?;
    let one = BigRational::from_integer(1.into());
    if let Some(user) = shares.iter().position(|s| s.is_negative() || *s > one) {
        return Err(RegionsError::NotAShare { user });
    }
    let total = BigRational::from_integer(regions.into());
    let scale = BigRational::from_integer(Share::ONE.raw().into());
    let (mut entitled, mut rests) = (Vec::new(), Vec::new());
    for share in shares {
        let product = share * &total;
        let rest = product.fract();
        let whole = u32::try_from(product.to_integer()).expect("a share of at most 2^20 regions");
        let raw = u64::try_from((&rest * &scale).to_integer()).expect("less than a whole share");
        // A remainder too small for a share still counts as one.
        let raw = raw.max(u64::from(rest.is_positive()));
        entitled.push(Entitlement { whole, rest: Share::from_raw(raw) });
        rests.push(rest);
    }
    let needed = rests.iter().fold(BigRational::zero(), |sum, rest| sum + rest).ceil();
    let needed = u128::try_from(needed.to_integer()).expect("at most one for each user");
    apportion(&entitled, regions, needed, |a, b| rests[a].cmp(&rests[b]))
}

fn check_count(regions: u32) -> Result<(), RegionsError> {
    if regions > REGIONS_MAX { Err(RegionsError::TooManyRegions { regions }) } else { Ok(()) }
}

fn apportion(
    entitled: &[Entitlement],
    regions: u32,
    needed: u128,
    compare: impl Fn(usize, usize) -> Ordering,
) -> Result<Vec<Regions>, RegionsError> {
    let whole: u64 = entitled.iter().map(|e| u64::from(e.whole)).sum();
    let left = u64::from(regions)
        .checked_sub(whole)
        .ok_or(RegionsError::OverSubscribed { entitled: whole, regions })?;
    let extra = needed.min(u128::from(left)) as usize;

    let mut order: Vec<usize> =
        (0..entitled.len()).filter(|&user| entitled[user].rest > Share::ZERO).collect();
    order.sort_by(|&a, &b| compare(b, a).then(a.cmp(&b)));
    let mut got: Vec<_> = entitled
        .iter()
        .map(|e| Regions { own: e.whole, shared: e.rest, spare: Share::ZERO })
        .collect();
    for &user in order.iter().take(extra) {
        let rest = entitled[user].rest;
        got[user].own += 1;
        got[user].shared = Share::ZERO;
        got[user].spare = Share::from_raw(Share::ONE.raw() - rest.raw());
    }
    Ok(got)
}
