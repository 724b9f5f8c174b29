//! Key of an operation, as YCSB's core workloads choose it.
//!
//! A rank is drawn by Zipf's law with the method of Gray et al. (Quickly Generating Billion-Record Synthetic Databases,
//! SIGMOD '94, 3.2), and hashed to a key by FNV-1a, so that popular keys are no neighbours ("scrambled"). YCSB draws from
//! 10^10 ranks however many keys there are: with 100,000 keys each also gets about 100,000 ranks of the tail, so a good
//! part of all operations is spread evenly. Its remainder is that of one more than there are keys; that one is drawn again.
//!
//! With no more ranks than keys the law is that of the keys themselves ("plain"): each is its own rank.

use std::collections::HashMap;

use rand::Rng;

/// Ranks whose probabilities are summed one by one; those behind them are as good as even over the keys.
const HEAD: u64 = 1_000_000;

#[derive(Debug, Clone)]
pub struct KeyChooser {
    keys: u64,
    ranks: f64,
    theta: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

/// The sum of `i^-theta` for `i` from 1 to `n`: term by term at first, then by the formula of Euler and Maclaurin.
pub fn zeta(n: f64, theta: f64) -> f64 {
    const TERMS: u32 = 10_000;
    let term = |i: f64| i.powf(-theta);
    if n <= f64::from(TERMS) {
        return (1..=n as u32).map(|i| term(f64::from(i))).sum();
    }
    let first = f64::from(TERMS);
    let head: f64 = (1..TERMS).map(|i| term(f64::from(i))).sum();
    let integral = (n.powf(1.0 - theta) - first.powf(1.0 - theta)) / (1.0 - theta);
    let slope = |i: f64| -theta * i.powf(-theta - 1.0);
    head + integral + (term(first) + term(n)) / 2.0 + (slope(n) - slope(first)) / 12.0
}

/// The FNV-1a hash of a number's eight bytes, the lowest first, without its sign.
pub fn hash(number: u64) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x100_0000_01b3;
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
    number.to_le_bytes().iter().fold(OFFSET, step).cast_signed().unsigned_abs()
}

/// A key's name.
pub fn name(key: u64) -> String {
    format!("user{}", hash(key))
}

/// Keys by their names.
#[derive(Debug, Clone)]
pub struct Names(HashMap<u64, u64>);

impl Names {
    /// Names of the keys from 0 to `keys`.
    pub fn new(keys: u64) -> Self {
        Self((0..keys).map(|key| (hash(key), key)).collect())
    }

    /// Number of keys with names.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no key has one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The key with a name.
    pub fn key(&self, name: &[u8]) -> Option<u64> {
        let hash = std::str::from_utf8(name.strip_prefix(b"user")?).ok()?.parse().ok()?;
        self.0.get(&hash).copied()
    }
}

impl KeyChooser {
    /// Keys from 0 to `keys`, by so many ranks; `theta` is from 0 to below 1. More ranks than keys are hashed to them.
    pub fn new(keys: u64, ranks: f64, theta: f64) -> Self {
        let zeta_all = zeta(ranks, theta);
        let eta = (1.0 - (2.0 / ranks).powf(1.0 - theta)) / (1.0 - zeta(2.0, theta) / zeta_all);
        Self { keys, ranks, theta, zeta: zeta_all, alpha: 1.0 / (1.0 - theta), eta }
    }

    /// The rank, from 0 on, for a number from 0 to below 1.
    fn rank(&self, u: f64) -> u64 {
        let part = u * self.zeta;
        if part < 1.0 {
            return 0;
        }
        if part < 1.0 + 0.5_f64.powf(self.theta) {
            return 1;
        }
        (self.ranks * (self.eta * u - self.eta + 1.0).powf(self.alpha)) as u64
    }

    /// Part of all operations that are for ranks up to this one.
    fn up_to(&self, rank: u64) -> f64 {
        match rank {
            0 => 1.0 / self.zeta,
            1 => (1.0 + 0.5_f64.powf(self.theta)) / self.zeta,
            _ => {
                let part = ((rank + 1) as f64 / self.ranks).min(1.0);
                let u = (part.powf(1.0 - self.theta) - 1.0 + self.eta) / self.eta;
                u.max(self.up_to(1))
            }
        }
    }

    fn is_plain(&self) -> bool {
        self.ranks <= self.keys as f64
    }

    /// The next key.
    pub fn choose(&self, random: &mut impl Rng) -> u64 {
        if self.is_plain() {
            return self.rank(random.random()).min(self.keys - 1);
        }
        loop {
            let key = hash(self.rank(random.random())) % (self.keys + 1);
            if key < self.keys {
                return key;
            }
        }
    }

    /// Part of all operations that is for each key.
    pub fn popularities(&self) -> Vec<f64> {
        if self.is_plain() {
            let up_to = |key: u64| if key < self.ranks as u64 { self.up_to(key) } else { 1.0 };
            let before = |key: u64| key.checked_sub(1).map_or(0.0, up_to);
            return (0..self.keys).map(|key| up_to(key) - before(key)).collect();
        }
        let mut of = vec![0.0; self.keys as usize + 1];
        let head = HEAD.min(self.ranks as u64);
        let mut before = 0.0;
        for rank in 0..head {
            let here = self.up_to(rank);
            of[(hash(rank) % (self.keys + 1)) as usize] += here - before;
            before = here;
        }
        let rest = (1.0 - before) / (self.keys + 1) as f64;
        let drawn_again = of.pop().unwrap_or_default() + rest;
        of.iter_mut().for_each(|of| *of = (*of + rest) / (1.0 - drawn_again));
        of
    }
}

/// Part of all reads that hit a cache of so many pairs that evicts the least recently used one, by Che's approximation
/// (Che, Tung, Wang: Hierarchical Web Caching Systems, IEEE JSAC 20(7), 2002): a pair is there if it was read within the time
/// in which so many different ones are.
pub fn che(popularities: &[f64], pairs: f64) -> f64 {
    hits(popularities, pairs, |reads| 1.0 - (-reads).exp())
}

/// The same for a cache that evicts the pair that came longest ago: each stays for one time, then is absent until it is asked
/// for (Gelenbe, A Unified Approach to the Evaluation of a Class of Replacement Algorithms, IEEE ToC C-22(6), 1973).
pub fn first_in_first_out(popularities: &[f64], pairs: f64) -> f64 {
    hits(popularities, pairs, |reads| reads / (1.0 + reads))
}

/// Pairs that such a cache must hold for this part of all reads to hit.
pub fn first_in_first_out_pairs(popularities: &[f64], hits: f64) -> f64 {
    let there = |reads: f64| reads / (1.0 + reads);
    let hit = |time: f64| popularities.iter().map(|p| p * there(p * time)).sum::<f64>();
    let (mut low, mut high) = (0.0, 1.0);
    // A pair that stays for 2^60 reads is always there.
    while hit(high) < hits && high < 2_f64.powi(60) {
        high *= 2.0;
    }
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if hit(middle) < hits {
            low = middle;
        } else {
            high = middle;
        }
    }
    popularities.iter().map(|p| there(p * high)).sum()
}

/// Part of all reads that hit, where a pair is there for the part `there` of the time if it is read so often while pairs stay.
fn hits(popularities: &[f64], pairs: f64, there: impl Fn(f64) -> f64) -> f64 {
    if pairs >= popularities.len() as f64 {
        return 1.0;
    }
    let held = |time: f64| popularities.iter().map(|p| there(p * time)).sum::<f64>();
    let (mut low, mut high) = (0.0, 1.0);
    while held(high) < pairs {
        high *= 2.0;
    }
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if held(middle) < pairs {
            low = middle;
        } else {
            high = middle;
        }
    }
    popularities.iter().map(|p| p * there(p * low)).sum()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// YCSB's source has the sum for 10^10 ranks as a constant.
    #[test]
    fn the_sum_is_that_which_ycsb_has() {
        assert!((zeta(1e10, 0.99) - 26.469_028_201_783_02).abs() < 1e-6, "{}", zeta(1e10, 0.99));
        let slow: f64 = (1..=50_000).map(|i| f64::from(i).powf(-0.7)).sum();
        assert!((zeta(50_000.0, 0.7) - slow).abs() < 1e-9);
    }

    /// Landon Curt Noll's test vector for FNV-1a: eight bytes are hashed from the offset on.
    #[test]
    fn the_hash_is_fnv_1a() {
        let slow = |bytes: &[u8]| {
            let mut hash = num(0xcbf2_9ce4_8422_2325);
            for byte in bytes {
                hash = ((hash ^ u128::from(*byte)) * num(0x100_0000_01b3)) % (1 << 64);
            }
            hash as u64
        };
        const fn num(n: u128) -> u128 {
            n
        }
        assert_eq!(slow(b"a"), 0xaf63_dc4c_8601_ec8c, "the published vector of one letter");
        for number in [0, 1, 255, 65_536, u64::MAX] {
            let expected = slow(&number.to_le_bytes()).cast_signed().unsigned_abs();
            assert_eq!(hash(number), expected);
        }
    }

    #[test]
    fn keys_are_drawn_as_often_as_is_computed() {
        are_drawn_as_computed(1e10);
        are_drawn_as_computed(1_000.0);
        let plain = KeyChooser::new(1_000, 1_000.0, 0.99).popularities();
        assert!(plain.is_sorted_by(|a, b| a >= b), "each key is its own rank");
    }

    fn are_drawn_as_computed(ranks: f64) {
        let keys = KeyChooser::new(1_000, ranks, 0.99);
        let of = keys.popularities();
        assert!((of.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let mut counts = vec![0_u32; 1_000];
        let draws = 400_000;
        (0..draws).for_each(|_| counts[keys.choose(&mut random) as usize] += 1);
        // Pearson's statistic, of 999 degrees of freedom: its mean is 999 and its deviation 45.
        let statistic: f64 = counts
            .iter()
            .zip(&of)
            .map(|(count, p)| {
                let expected = p * f64::from(draws);
                (f64::from(*count) - expected).powi(2) / expected
            })
            .sum();
        assert!((800.0..1_200.0).contains(&statistic), "{statistic}");
    }

    #[test]
    fn the_approximation_is_exact_at_its_ends() {
        let even = vec![0.01; 100];
        assert!((che(&even, 50.0) - 0.5).abs() < 1e-6);
        assert!(che(&even, 100.0) >= 1.0 && che(&even, 0.0) < 1e-9);
        assert!((first_in_first_out(&even, 50.0) - 0.5).abs() < 1e-6);
        assert!((first_in_first_out_pairs(&even, 0.5) - 50.0).abs() < 1e-6);
    }

    /// A small cache depends on the popularity of keys and, less, on the order of eviction; one that holds all pairs on neither.
    #[test]
    fn a_small_cache_hits_less_with_scrambled_keys_and_more_in_the_order_of_use() {
        let plain = KeyChooser::new(10_000, 10_000.0, 0.99).popularities();
        let scrambled = KeyChooser::new(10_000, 1e10, 0.99).popularities();
        let pairs = first_in_first_out_pairs(&plain, 0.623);
        assert!((first_in_first_out(&plain, pairs) - 0.623).abs() < 1e-6, "{pairs}");
        assert!(first_in_first_out(&scrambled, pairs) < 0.45);
        let used_last = che(&plain, pairs);
        assert!((0.63..0.70).contains(&used_last), "{used_last}");
        for all in [&plain, &scrambled] {
            assert!(first_in_first_out(all, 10_000.0) >= 1.0 && che(all, 10_000.0) >= 1.0);
        }
    }
}
