//! The file of measurements: JSON lines, one for each point, so that a calibration that was interrupted goes on where it was.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

use crate::measure::POINTS;
use crate::{Design, Error, Point};

/// The file, open for more.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    points: Vec<Point>,
}

impl Journal {
    /// Opens the file, made if it is not there, with what was measured of this design before. A load of which something is
    /// missing is dropped.
    ///
    /// # Errors
    /// It cannot be read or written, or is of another design.
    pub fn open(path: &Path, design: &Design) -> Result<Self, Error> {
        let name = || path.display().to_string();
        let failed = |source| Error::File { file: name(), source };
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(failed)?;
        let mut points: Vec<Point> = Vec::new();
        let mut wrong = None;
        for (number, line) in BufReader::new(&file).lines().enumerate() {
            let line = line.map_err(failed)?;
            let mistake = |message: String| Error::Journal {
                file: name(),
                line: number + 1,
                message,
            };
            if let Some(error) = wrong.take() {
                // Only the last line may be cut off.
                return Err(error);
            }
            match serde_json::from_str::<Point>(&line) {
                Ok(point) if design.all().any(|spec| *spec == point.spec) => points.push(point),
                Ok(point) => {
                    let number = point.spec.number;
                    return Err(mistake(format!(
                        "load {number} is of other options: give the same --loads and --seed, or another file"
                    )));
                }
                Err(error) => wrong = Some(mistake(error.to_string())),
            }
        }
        let mut journal = Self {
            path: path.to_owned(),
            file,
            points,
        };
        let is_whole = |point: &&Point| {
            let same = |other: &&Point| (other.spec.number, other.pass) == (point.spec.number, point.pass);
            journal.points.iter().filter(same).count() == POINTS
        };
        let whole: Vec<Point> = journal.points.iter().filter(is_whole).cloned().collect();
        if wrong.is_some() || whole.len() < journal.points.len() {
            journal.points = whole;
            journal.rewrite()?;
        }
        Ok(journal)
    }

    /// The measured points.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Whether a load was measured in a pass.
    pub fn has(&self, load: u32, pass: u32) -> bool {
        let is_it = |point: &Point| (point.spec.number, point.pass) == (load, pass);
        self.points.iter().any(is_it)
    }

    /// Keeps a load's measurements: all of them or none.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, points: &[Point]) -> Result<(), Error> {
        let text = lines(points)?;
        self.write(text.as_bytes())?;
        // As they will be read again, to the last digit.
        for line in text.lines() {
            let point = serde_json::from_str(line).map_err(|error| Error::Training(error.to_string()))?;
            self.points.push(point);
        }
        Ok(())
    }

    fn rewrite(&mut self) -> Result<(), Error> {
        self.file.set_len(0).map_err(|source| self.failed(source))?;
        let text = lines(&self.points)?;
        self.write(text.as_bytes())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = self.file.write_all(bytes).and_then(|()| self.file.sync_data());
        written.map_err(|source| self.failed(source))
    }

    fn failed(&self, source: std::io::Error) -> Error {
        Error::File {
            file: self.path.display().to_string(),
            source,
        }
    }
}

fn lines(points: &[Point]) -> Result<String, Error> {
    let mut text = String::new();
    for point in points {
        text += &serde_json::to_string(point).map_err(|error| Error::Training(error.to_string()))?;
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(design: &Design, load: usize) -> Vec<Point> {
        let point = |number: usize| Point {
            spec: design.loads[load],
            pass: 0,
            rate_ratio: number as f64,
            seconds: 1.0,
            operations: 1000,
            cpu_ns: 2_000_000,
            inputs: [("rate".to_owned(), 1000.0)].into(),
        };
        (0..POINTS).map(point).collect()
    }

    #[test]
    fn an_interrupted_calibration_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("points.jsonl");
        let design = Design::new(3, 1);
        let mut journal = Journal::open(&path, &design).unwrap();
        let first = points(&design, 0);
        journal.add(&first).unwrap();
        let whole = std::fs::read(&path).unwrap().len();
        journal.add(&points(&design, 1)).unwrap();
        drop(journal);
        let text = std::fs::read(&path).unwrap();
        // Killed while the second load was written: within a line, and between two.
        let one = text[whole..].iter().position(|byte| *byte == b'\n').unwrap();
        for length in [text.len() - 10, whole + one + 1] {
            std::fs::write(&path, &text[..length]).unwrap();
            let mut journal = Journal::open(&path, &design).unwrap();
            assert_eq!(journal.points(), first);
            assert!(journal.has(0, 0) && !journal.has(1, 0));
            journal.add(&points(&design, 1)).unwrap();
            drop(journal);
            assert_eq!(Journal::open(&path, &design).unwrap().points().len(), 2 * POINTS);
        }
        // A second pass that was interrupted takes nothing from the first.
        let mut second = points(&design, 0);
        second.iter_mut().for_each(|point| point.pass = 1);
        let mut journal = Journal::open(&path, &design).unwrap();
        journal.add(&second[1..]).unwrap();
        assert!(journal.has(0, 1));
        drop(journal);
        let mut journal = Journal::open(&path, &design).unwrap();
        assert!(journal.has(0, 0) && !journal.has(0, 1));
        journal.add(&second).unwrap();
        drop(journal);
        assert_eq!(Journal::open(&path, &design).unwrap().points().len(), 3 * POINTS);
        let error = Journal::open(&path, &Design::new(3, 2)).unwrap_err().to_string();
        assert!(error.contains("line 1") && error.contains("--seed"), "{error}");
        let middle = String::from_utf8(std::fs::read(&path).unwrap())
            .unwrap()
            .replacen('{', "[", 1);
        std::fs::write(&path, middle).unwrap();
        assert!(
            Journal::open(&path, &design)
                .unwrap_err()
                .to_string()
                .contains("line 1")
        );
    }
}
