//! Rows of several networks divided among threads.

/// Rows of one network that can be divided.
pub(super) trait Divisible {
    fn rows(&self) -> usize;

    /// How many rows lie before each place within them where they are best divided.
    fn seams(&self) -> Vec<usize> {
        Vec::new()
    }

    /// Splits off the first `rows` rows.
    fn split_off(&mut self, rows: usize) -> Self;
}

/// What a thread does once for some rows of a network, such as tables behind gates, takes as long as so
/// many rows: runs differ by up to that if they can then end at seams.
const NEAR: usize = 32;

/// Divides the rows of all networks, one network after the other, into at most `n` runs of about as many
/// rows each.
pub(super) fn runs<T: Divisible>(networks: Vec<T>, n: usize) -> Vec<Vec<T>> {
    let (mut seams, mut total) = (Vec::new(), 0);
    for network in &networks {
        seams.extend(network.seams().into_iter().map(|seam| total + seam));
        total += network.rows();
        seams.push(total);
    }
    let size = total.div_ceil(n);
    // Ends that move by less than half a run stay apart.
    let near = NEAR.min(size / 4);
    let (mut runs, mut at, mut end) = (Vec::with_capacity(n), 0, 0);
    for mut network in networks {
        while network.rows() > 0 {
            if at == end {
                runs.push(Vec::new());
                end = (runs.len() * size).min(total);
                let seam = seams.iter().copied().min_by_key(|seam| seam.abs_diff(end));
                end = seam.filter(|seam| seam.abs_diff(end) <= near).unwrap_or(end);
            }
            let part = network.split_off((end - at).min(network.rows()));
            at += part.rows();
            if let Some(run) = runs.last_mut() {
                run.push(part);
            }
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    /// Rows of a network by their numbers, and where they are best divided.
    struct Numbers(Range<usize>, Vec<usize>);

    impl Divisible for Numbers {
        fn rows(&self) -> usize {
            self.0.len()
        }

        fn seams(&self) -> Vec<usize> {
            self.1.clone()
        }

        fn split_off(&mut self, rows: usize) -> Self {
            let part = Self(self.0.start..self.0.start + rows, Vec::new());
            self.0.start += rows;
            part
        }
    }

    /// The runs of networks of so many rows, which have these seams and their ends.
    fn divided(networks: &[(usize, &[usize])], n: usize) -> Vec<Vec<(usize, usize)>> {
        let numbers = |&(rows, seams): &(usize, &[usize])| Numbers(0..rows, seams.to_vec());
        let runs = runs(networks.iter().map(numbers).collect(), n);
        runs.into_iter()
            .map(|run| run.into_iter().map(|part| (part.0.start, part.0.end)).collect())
            .collect()
    }

    #[test]
    fn runs_end_at_seams_that_are_near() {
        assert_eq!(divided(&[(256, &[])], 2), [[(0, 128)], [(128, 256)]]);
        assert_eq!(divided(&[(140, &[]), (116, &[])], 2), [[(0, 140)], [(0, 116)]]);
        assert_eq!(divided(&[(128, &[50])], 2), [[(0, 50)], [(50, 128)]]);
        assert_eq!(divided(&[(128, &[40])], 2), [[(0, 64)], [(64, 128)]]);
        assert_eq!(
            divided(&[(200, &[]), (56, &[])], 2),
            [vec![(0, 128)], vec![(128, 200), (0, 56)]]
        );
    }

    #[test]
    fn every_row_is_in_one_of_at_most_n_runs() {
        for n in 1..9 {
            for rows in [0, 1, 2, 31, 64, 100, 257] {
                for (other, seam) in [(0, 1), (1, 30), (63, 50), (256, 99)] {
                    let all = divided(&[(rows, &[seam.min(rows)]), (other, &[])], n);
                    assert!(all.len() <= n, "{rows} {other} {n}");
                    let numbers: Vec<usize> =
                        all.into_iter().flatten().flat_map(|(start, end)| start..end).collect();
                    assert_eq!(numbers, (0..rows).chain(0..other).collect::<Vec<_>>());
                }
            }
        }
    }
}
