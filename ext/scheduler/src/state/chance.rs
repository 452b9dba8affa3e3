//! Seeded random choices: the same seed and the same calls give the same answers on every machine.

/// SplitMix64 (Steele, Lea and Flood 2014). Each call changes the state, so different histories of calls have different
/// states.
#[derive(Debug)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A uniformly distributed number below `count`. Draws nothing if there is no choice.
    pub fn below(&mut self, count: usize) -> usize {
        if count < 2 {
            return 0;
        }
        let mut mixed = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        self.0 = mixed ^ count as u64;
        ((u128::from(mixed) * count as u128) >> 64) as usize
    }

    pub fn digest(&self) -> u64 {
        self.0
    }
}
