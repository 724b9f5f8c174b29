//! Places for packets and their copies: taken and given back without allocation, so that memory
//! follows what is in flight and not what was ever sent. Not the crate `slab`: packets and copies link to
//! each other by `u32`, and values are `Copy`, so an entry needs no tag for "vacant".

/// Values at numbered places that are used again.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T: Copy> Slab<T> {
    /// Puts a value somewhere; says where.
    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(at) = self.free.pop() {
            self.places[at as usize] = value;
            return at;
        }
        self.places.push(value);
        self.places.len() as u32 - 1
    }

    /// Gives a place back; says what was there.
    #[inline]
    pub(crate) fn remove(&mut self, at: u32) -> T {
        self.free.push(at);
        self.places[at as usize]
    }

    /// Number of places that are taken.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Number of places: the most that were ever taken at once.
    pub(crate) fn capacity(&self) -> usize {
        self.places.len()
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, at: u32) -> &T {
        &self.places[at as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.places[at as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again() {
        let mut slab = Slab::default();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!((slab.remove(a), slab.len(), slab.capacity()), ('a', 1, 2));
        assert_eq!(slab.insert('c'), a);
        assert_eq!((slab[a], slab[b], slab.len(), slab.capacity()), ('c', 'b', 2, 2));
    }
}
