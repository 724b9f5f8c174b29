//! Divides whole regions among users by their fractional shares of area, by largest remainder.
//!
//! A user entitled to 2.4 regions gets two or three of its own. If it gets two, the 0.4 are served by
//! sharing another user's region; if it gets three, 0.6 of the third are available for sharing. Ties go
//! to the lower position (the lower id).

use crate::drf::Share;

/// Bits of a remainder that count in comparisons: more than needed to tell users apart, few enough
/// that [`NOISE_BITS`] cannot reach them.
const REMAINDER_BITS: u32 = 20;
/// A fraction of a region below 2^-30 counts as rounding of a share, not as a claim: shares are
/// accurate to about 2^-40, and there are at most [`REGIONS_MAX`] regions.
const NOISE_BITS: u32 = 30;

/// Most regions that can be divided: 1024, far more than any card has. With more, the rounding of
/// shares would turn into claims on regions.
pub const REGIONS_MAX: u32 = 1 << 10;

/// Regions of one user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserRegions {
    /// Regions of its own.
    pub own: u32,
    /// Fraction of one region to which it is entitled beyond those, to be served by sharing.
    pub shared: Share,
    /// Fraction of its own regions beyond its entitlement, to be offered to others.
    pub spare: Share,
}

/// Why regions cannot be divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RegionsError {
    /// The shares sum to more than one.
    #[error("the shares add up to at least {entitled} regions, but there are only {regions}")]
    OverSubscribed {
        /// The sum of the whole regions in the shares.
        entitled: u64,
        /// Number of regions.
        regions: u32,
    },
    /// Too many regions.
    #[error("{regions} regions exceed the limit of {REGIONS_MAX}")]
    TooManyRegions {
        /// Number of regions.
        regions: u32,
    },
}

/// An entitlement: whole regions, and a fraction of one more.
struct Entitlement {
    whole: u32,
    remainder: Share,
}

/// Divides `regions` among users by their `shares` of all regions. In all, the users get as many regions
/// as the shares need together (the sum, rounded up), never more than there are. A user gets the
/// whole regions of its share, and one more if its remainder is among the largest. Remainders that
/// agree in 20 bits are ties; equal fractions with a denominator below 512 always agree.
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
/// [`RegionsError`] for more than [`REGIONS_MAX`] regions, or if the shares sum to more whole regions
/// than there are.
pub fn divide(shares: &[Share], regions: u32) -> Result<Vec<UserRegions>, RegionsError> {
    if regions > REGIONS_MAX {
        return Err(RegionsError::TooManyRegions { regions });
    }
    let one = u128::from(Share::ONE.raw());
    let noise = one >> NOISE_BITS;
    let entitled: Vec<_> = shares
        .iter()
        .map(|share| {
            let product = u128::from(share.raw()) * u128::from(regions);
            let whole = (product + noise) / one;
            let remainder = product.saturating_sub(whole * one);
            Entitlement { whole: whole as u32, remainder: Share::from_raw(remainder as u64) }
        })
        .collect();
    let whole: u64 = entitled.iter().map(|e| u64::from(e.whole)).sum();
    let left = u64::from(regions)
        .checked_sub(whole)
        .ok_or(RegionsError::OverSubscribed { entitled: whole, regions })?;
    let remainders: u128 = entitled.iter().map(|e| u128::from(e.remainder.raw())).sum();
    let needed = remainders.saturating_sub(noise).div_ceil(one);
    let extra = needed.min(u128::from(left)) as usize;

    let rounded = |user: usize| {
        let dropped = Share::ONE.raw().trailing_zeros() - REMAINDER_BITS;
        (entitled[user].remainder.raw() + (1 << (dropped - 1))) >> dropped
    };
    let has_remainder = |user: &usize| entitled[*user].remainder > Share::ZERO;
    let mut order: Vec<usize> = (0..entitled.len()).filter(has_remainder).collect();
    order.sort_by(|&a, &b| rounded(b).cmp(&rounded(a)).then(a.cmp(&b)));
    let mut got: Vec<_> = entitled
        .iter()
        .map(|e| UserRegions { own: e.whole, shared: e.remainder, spare: Share::ZERO })
        .collect();
    for &user in order.iter().take(extra) {
        let remainder = entitled[user].remainder;
        got[user].own += 1;
        got[user].shared = Share::ZERO;
        got[user].spare = Share::from_raw(Share::ONE.raw() - remainder.raw());
    }
    Ok(got)
}
