//! Division of whole regions by largest remainder, in fractions of unbounded size.

use num_rational::BigRational;
use num_traits::{Signed, Zero};
use snic_fairness::drf::Share;
use snic_fairness::regions::UserRegions;

/// Divides `regions` by exact `shares`, which are between 0 and 1 and add up to at most 1.
///
/// # Panics
///
/// If the shares are anything else.
pub fn divide(shares: &[BigRational], regions: u32) -> Vec<UserRegions> {
    let one = BigRational::from_integer(1.into());
    assert!(shares.iter().all(|share| !share.is_negative()), "a negative share");
    assert!(shares.iter().fold(BigRational::zero(), |sum, s| sum + s) <= one, "more than all");
    let total = BigRational::from_integer(regions.into());
    let entitled: Vec<BigRational> = shares.iter().map(|share| share * &total).collect();
    let remainders: Vec<BigRational> = entitled.iter().map(BigRational::fract).collect();
    let needed = remainders.iter().fold(BigRational::zero(), |sum, rest| sum + rest).ceil();
    let needed = usize::try_from(needed.to_integer()).expect("at most one region for each user");
    let mut order: Vec<usize> = (0..shares.len()).filter(|i| !remainders[*i].is_zero()).collect();
    order.sort_by(|&a, &b| remainders[b].cmp(&remainders[a]).then(a.cmp(&b)));
    let rounded_up = &order[..needed];
    let divided = entitled.iter().zip(&remainders).enumerate().map(|(user, (entitled, rest))| {
        let whole = u32::try_from(entitled.to_integer()).expect("at most the regions there are");
        match rounded_up.contains(&user) {
            true => {
                UserRegions { own: whole + 1, shared: Share::ZERO, spare: share(&(&one - rest)) }
            }
            false => UserRegions { own: whole, shared: share(rest), spare: Share::ZERO },
        }
    });
    divided.collect()
}

/// A fraction between 0 and 1 as a [`Share`], rounded to the nearest.
fn share(fraction: &BigRational) -> Share {
    let scaled = fraction * BigRational::from_integer(Share::ONE.raw().into());
    Share::from_raw(u64::try_from(scaled.round().to_integer()).expect("at most a whole share"))
}
