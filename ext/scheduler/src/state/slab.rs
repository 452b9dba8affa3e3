//! A slab of records. A record's token never finds a later record in the same place.

use reactor::Token;

/// Each token carries `MARKS` (`state/token_mark.rs`) in its index.
#[derive(Debug)]
pub struct Slab<T, const MARKS: u32> {
    records: Vec<Option<T>>,
    /// How many times each place was vacated.
    generations: Vec<u32>,
    free: Vec<u32>,
}

impl<T, const MARKS: u32> Default for Slab<T, MARKS> {
    fn default() -> Self {
        Self {
            records: Vec::new(),
            generations: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T, const MARKS: u32> Slab<T, MARKS> {
    pub fn insert(&mut self, record: T) -> Token {
        let place = self.free.pop().unwrap_or_else(|| {
            self.records.push(None);
            self.generations.push(0);
            (self.records.len() - 1) as u32
        });
        self.records[place as usize] = Some(record);
        self.token(place as usize)
    }

    pub fn get(&self, token: Token) -> Option<&T> {
        self.records[self.place(token)?].as_ref()
    }

    pub fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let place = self.place(token)?;
        self.records[place].as_mut()
    }

    pub fn remove(&mut self, token: Token) -> Option<T> {
        let place = self.place(token)?;
        let record = self.records[place].take()?;
        self.generations[place] = self.generations[place].wrapping_add(1);
        self.free.push(place as u32);
        Some(record)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn len(&self) -> usize {
        self.records.len() - self.free.len()
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.records.iter().flatten()
    }

    pub fn iter(&self) -> impl Iterator<Item = (Token, &T)> {
        let records = self.records.iter().enumerate();
        records.filter_map(|(place, record)| Some((self.token(place), record.as_ref()?)))
    }

    fn token(&self, place: usize) -> Token {
        Token::new(place as u32 | MARKS, self.generations[place])
    }

    /// The place of the record, if it exists.
    fn place(&self, token: Token) -> Option<usize> {
        let place = (token.index() ^ MARKS) as usize;
        (self.generations.get(place) == Some(&token.generation())).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use reactor::Token;

    use super::Slab;

    type Marked = Slab<&'static str, { 1 << 31 }>;

    #[test]
    fn an_old_token_finds_no_later_record() {
        let mut slab = Marked::default();
        let old = slab.insert("old");
        assert_eq!((Some("old"), None), (slab.remove(old), slab.remove(old)));
        let new = slab.insert("new");
        assert_eq!(old.index(), new.index());
        assert_eq!((None, Some(&"new")), (slab.get(old), slab.get(new)));
    }

    #[test]
    fn a_token_with_other_marks_finds_nothing() {
        let mut slab = Marked::default();
        let token = slab.insert("record");
        for index in [0, 1 << 30, 1 << 31 | 1 << 30] {
            assert_eq!(None, slab.get(Token::new(index, token.generation())));
        }
    }

    #[test]
    fn records_are_found_in_the_order_of_their_places() {
        let mut slab = Marked::default();
        let tokens = ["a", "b", "c"].map(|record| slab.insert(record));
        slab.remove(tokens[1]);
        assert_eq!(2, slab.len());
        let found: Vec<_> = slab.iter().collect();
        assert_eq!(vec![(tokens[0], &"a"), (tokens[2], &"c")], found);
    }
}
