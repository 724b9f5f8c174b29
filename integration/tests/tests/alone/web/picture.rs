//! Pictures of the page, made small: a cell of 8 by 8 pixels becomes one. This hides how fonts draw
//! letters, but not parts that are moved, missing, or of another colour.

use std::path::{Path, PathBuf};

/// Pixels of a cell's side.
const CELL: usize = 8;
/// Difference of a cell that counts, of 255.
const FAR: u8 = 40;
/// Cells of a thousand that may differ by more.
const FAR_CELLS_MILLI: usize = 15;
/// Cells that a page may be longer or shorter by.
const LONGER: usize = 3;

/// A small picture, RGB.
#[derive(PartialEq, Eq)]
pub struct Picture {
    width: usize,
    height: usize,
    cells: Vec<[u8; 3]>,
}

fn decode(png: &[u8]) -> (usize, usize, usize, Vec<u8>) {
    let reader = png::Decoder::new(std::io::Cursor::new(png)).read_info();
    let mut reader = reader.expect("a PNG");
    let mut bytes = vec![0; reader.output_buffer_size().expect("it fits")];
    let info = reader.next_frame(&mut bytes).expect("a PNG");
    (info.width as usize, info.height as usize, info.color_type.samples(), bytes)
}

impl Picture {
    /// Makes a page's picture small.
    pub fn small(png: &[u8]) -> Self {
        let (wide, high, samples, bytes) = decode(png);
        let (width, height) = (wide / CELL, high / CELL);
        let cell = |at: usize| {
            let (left, top) = (at % width * CELL, at / width * CELL);
            let mut sum = [0_usize; 3];
            for (x, y) in (0..CELL * CELL).map(|n| (left + n % CELL, top + n / CELL)) {
                let pixel = &bytes[(y * wide + x) * samples..][..3];
                sum.iter_mut().zip(pixel).for_each(|(sum, part)| *sum += usize::from(*part));
            }
            sum.map(|sum| u8::try_from(sum / (CELL * CELL)).expect("a mean of bytes"))
        };
        Self { width, height, cells: (0..width * height).map(cell).collect() }
    }

    fn file(name: &str) -> PathBuf {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/alone/web/pictures");
        folder.join(format!("{name}.png"))
    }

    /// Keeps it as what is expected.
    pub fn keep(&self, name: &str) {
        let file = std::fs::File::create(Self::file(name)).expect("the folder takes files");
        let size = |side: usize| u32::try_from(side).expect("small");
        let mut encoder = png::Encoder::new(file, size(self.width), size(self.height));
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_compression(png::Compression::High);
        let mut writer = encoder.write_header().expect("written");
        writer.write_image_data(&self.cells.concat()).expect("written");
    }

    /// Picture that is expected.
    pub fn kept(name: &str) -> Self {
        let png = std::fs::read(Self::file(name)).expect("it was kept");
        let (width, height, _, bytes) = decode(&png);
        let cells = bytes.as_chunks::<3>().0.to_vec();
        Self { width, height, cells }
    }

    /// Difference to what is expected, as a sentence; `None` where it is the same.
    pub fn differs(&self, expected: &Self) -> Option<String> {
        if self.width != expected.width || self.height.abs_diff(expected.height) > LONGER {
            let size = |picture: &Self| (picture.width * CELL, picture.height * CELL);
            return Some(format!("it is {:?}, not {:?}", size(self), size(expected)));
        }
        let cells = self.cells.iter().zip(&expected.cells);
        let is_far = |(a, b): &(&[u8; 3], &[u8; 3])| {
            a.iter().zip(b.iter()).any(|(a, b)| a.abs_diff(*b) > FAR)
        };
        let far: Vec<usize> =
            cells.enumerate().filter(|(_, cell)| is_far(cell)).map(|(at, _)| at).collect();
        let all = self.cells.len().min(expected.cells.len());
        let first = far.first().map(|at| (at % self.width * CELL, at / self.width * CELL));
        (far.len() * 1_000 > all * FAR_CELLS_MILLI)
            .then(|| format!("{} of {all} cells differ, first at {first:?}", far.len()))
    }
}

#[test]
fn a_picture_that_is_shifted_or_of_another_colour_differs() {
    let picture = |shift: usize, colour: u8| {
        let cell = |at: usize| if (at % 40 + shift) % 8 < 3 { [colour; 3] } else { [250; 3] };
        Picture { width: 40, height: 50, cells: (0..2_000).map(cell).collect() }
    };
    assert_eq!(picture(0, 20).differs(&picture(0, 20)), None);
    assert_eq!(picture(0, 20).differs(&picture(0, 40)), None, "a shade");
    assert!(picture(1, 20).differs(&picture(0, 20)).is_some(), "shifted");
    assert!(picture(0, 90).differs(&picture(0, 20)).is_some(), "another colour");
    let longer = Picture { height: 60, cells: vec![[250; 3]; 2_400], ..picture(0, 20) };
    assert!(longer.differs(&picture(0, 20)).is_some_and(|said| said.contains("not")));
}
