//! Pages of a selection: what a server reads, piece by piece, until a page is full.

use std::cmp::Ordering;

use super::{ListSelection, Listed, SortKey};
use crate::convert::FieldProblem;
use crate::error::ApiError;
use crate::page::{InvalidPage, Page, PageRequest, Query};

/// Resources read at a time where some may be left out: what reads them is not held up for long.
const PIECE: usize = 256;
/// Most resources that are looked at for a page in the list's own order. Beyond it the page ends, maybe
/// empty, and the next one goes on.
const LOOKED_AT_MAX: usize = 10_000;
/// Most resources that are put in order for a page: each page looks at all of them.
const ORDERED_MAX: usize = 100_000;

/// A list request: its page, and what is listed.
#[derive(Debug, Clone)]
pub struct Listing {
    page: PageRequest,
    selection: ListSelection,
}

/// The fields that list requests have in common.
#[derive(Debug, Clone, Copy)]
pub struct ListFields<'a> {
    pub page_size: i32,
    pub page_token: &'a str,
    pub filter: &'a str,
    pub order_by: &'a str,
}

impl Listing {
    /// Parses the list fields of a request for resources of type `R`. A page token is valid only for the same
    /// `query`, filter and order.
    ///
    /// # Errors
    /// An [`ApiError`] that names the field and says what is allowed.
    pub fn parse<R: Listed>(query: Query, fields: ListFields<'_>) -> Result<Self, ApiError> {
        let selection = ListSelection::parse::<R>(fields.filter, fields.order_by)?;
        let with = |query: Query, name: &str, text: &str| match text {
            "" => query,
            text => query.with(name, text),
        };
        let query = with(with(query, "filter", fields.filter), "order_by", fields.order_by);
        let page = PageRequest::parse(query, fields.page_size, fields.page_token);
        let page = page.map_err(|error| ApiError::invalid_page(&error))?;
        Ok(Self { page, selection })
    }

    /// Begins a page of at most `bytes_max` bytes, or one resource if that is larger.
    ///
    /// # Errors
    /// The page token is of another order, which only a forged one can be.
    pub fn begin<M: Listed>(&self, bytes_max: usize) -> Result<Pieces<'_, M>, ApiError> {
        let (after, behind) = match self.page.after() {
            Some(key) if self.selection.is_ordered() => {
                let behind = serde_json::from_str::<(SortKey, String)>(key);
                let behind = behind.map_err(|_| ApiError::invalid_page(&InvalidPage::Token))?;
                (None, Some(behind))
            }
            after => (after.map(str::to_owned), None),
        };
        let (looked_at, bytes, found) = (0, 0, Vec::new());
        Ok(Pieces { listing: self, bytes_max, after, behind, looked_at, bytes, found })
    }
}

/// A page that is being filled with pieces of the list.
#[derive(Debug)]
pub struct Pieces<'a, M> {
    listing: &'a Listing,
    bytes_max: usize,
    /// The key of the last resource that was looked at.
    after: Option<String>,
    /// In another order than the list's own: the last resource of the previous page.
    behind: Option<(SortKey, String)>,
    looked_at: usize,
    /// Bytes on the page so far.
    bytes: usize,
    found: Vec<Found<M>>,
}

#[derive(Debug)]
struct Found<M> {
    place: SortKey,
    key: String,
    message: M,
}

/// A resource with its key in the list's own order.
pub type Keyed<M> = (String, M);

impl<M: Listed> Pieces<'_, M> {
    /// The key behind which the next piece begins, and how many resources it has at most.
    pub fn next(&self) -> (Option<&str>, usize) {
        // One more than the page has tells whether there is another page.
        let most = if self.listing.selection.is_all() { self.most() + 1 } else { PIECE };
        (self.after.as_deref(), most)
    }

    fn most(&self) -> usize {
        self.listing.page.limit()
    }

    /// Adds the next piece, in the list's own order; one that is shorter than asked for is the last. Gives the
    /// page when it is full or the list is at its end.
    ///
    /// # Errors
    /// The list is too long for another order than its own.
    pub fn add(&mut self, piece: Vec<Keyed<M>>) -> Result<Option<Page<M>>, ApiError> {
        let is_last = piece.len() < self.next().1;
        self.looked_at += piece.len();
        if self.listing.selection.is_ordered() {
            self.add_in_order(piece)?;
            return Ok(is_last.then(|| self.ordered_page()));
        }
        for (key, message) in piece {
            let Some(place) = self.listing.selection.key_of(&message) else {
                self.after = Some(key);
                continue;
            };
            if self.is_full_with(&message) {
                return Ok(Some(self.page()));
            }
            self.after = Some(key.clone());
            self.take(Found { place, key, message });
        }
        if is_last {
            self.after = None;
        }
        let ends = is_last || self.looked_at >= LOOKED_AT_MAX;
        Ok(ends.then(|| self.page()))
    }

    fn take(&mut self, found: Found<M>) {
        self.bytes = self.bytes.saturating_add(found.message.encoded_len());
        self.found.push(found);
    }

    /// Whether a resource is one too many.
    fn is_full_with(&self, message: &M) -> bool {
        let over = self.bytes.saturating_add(message.encoded_len()) > self.bytes_max;
        !self.found.is_empty() && (self.found.len() == self.most() || over)
    }

    /// The page; the next one begins after the last resource that was looked at.
    fn page(&mut self) -> Page<M> {
        let token = |key: String| self.listing.page.token_after(&key);
        let next_page_token = self.after.take().map(token).unwrap_or_default();
        let items = std::mem::take(&mut self.found);
        Page { items: items.into_iter().map(|found| found.message).collect(), next_page_token }
    }

    fn add_in_order(&mut self, piece: Vec<Keyed<M>>) -> Result<(), ApiError> {
        if self.looked_at > ORDERED_MAX {
            let text = format!(
                "the list has more than {ORDERED_MAX} resources, too many for another order; leave order_by out"
            );
            return Err(FieldProblem::invalid("order_by", text).into());
        }
        for (key, message) in piece {
            self.after = Some(key.clone());
            let Some(place) = self.listing.selection.key_of(&message) else { continue };
            let found = Found { place, key, message };
            let is_behind = self.behind.as_ref().is_none_or(|(place, key)| {
                self.compare((&found.place, &found.key), (place, key)).is_gt()
            });
            if is_behind {
                self.found.push(found);
            }
        }
        // At most two pages of resources are kept.
        if self.found.len() > 2 * self.most() {
            self.sort();
            self.found.truncate(self.most() + 1);
        }
        Ok(())
    }

    /// Compares by place; resources of one place always stand in the same order.
    fn compare(&self, a: (&SortKey, &str), b: (&SortKey, &str)) -> Ordering {
        self.listing.selection.compare(a.0, b.0).then_with(|| a.1.cmp(b.1))
    }

    fn sort(&mut self) {
        let mut found = std::mem::take(&mut self.found);
        found.sort_by(|a, b| self.compare((&a.place, &a.key), (&b.place, &b.key)));
        self.found = found;
    }

    fn ordered_page(&mut self) -> Page<M> {
        self.sort();
        let all = std::mem::take(&mut self.found);
        let mut last = None;
        self.after = None;
        for found in all {
            if self.is_full_with(&found.message) {
                self.after = last;
                break;
            }
            // Texts and numbers have a form in JSON.
            last = serde_json::to_string(&(&found.place, &found.key)).ok();
            self.take(found);
        }
        self.page()
    }
}
