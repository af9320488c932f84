//! The left operand of a product, its initial value and its last operation.

/// What a product is added to.
#[derive(Clone, Copy)]
pub(super) enum Start<'a, F> {
    /// Zero.
    Zero,
    /// The same row under every row.
    Row(&'a [F]),
    /// What the output holds.
    Output,
}

/// What becomes of a product's elements before they are written.
#[derive(Clone, Copy)]
pub(super) enum Finish<'a, F> {
    /// Nothing.
    Keep,
    /// Negative ones become zero.
    Rectify,
    /// Those become zero whose element of this array, laid out as the output, is not positive.
    WherePositive(&'a [F]),
}

impl<F> Finish<'_, F> {
    /// The same for the output's elements from `first` on.
    pub(super) fn from(self, first: usize) -> Self {
        match self {
            Self::WherePositive(signs) => Self::WherePositive(&signs[first..]),
            Self::Keep | Self::Rectify => self,
        }
    }
}

/// The left operand, `rows` × `depth`; element (i, p) is at `i * row_stride + p * column_stride`.
#[derive(Clone, Copy)]
pub(super) struct Left<'a, F> {
    pub(super) elements: &'a [F],
    pub(super) rows: usize,
    pub(super) depth: usize,
    pub(super) row_stride: usize,
    pub(super) column_stride: usize,
}

impl<'a, F> Left<'a, F> {
    /// The rows of a matrix with so many elements from row to row.
    pub(super) fn rows(elements: &'a [F], rows: usize, depth: usize, stride: usize) -> Self {
        Self { elements, rows, depth, row_stride: stride, column_stride: 1 }
    }

    /// The first `rows` columns of a matrix of `depth` rows, as rows.
    pub(super) fn columns(elements: &'a [F], rows: usize, depth: usize, stride: usize) -> Self {
        Self { elements, rows, depth, row_stride: 1, column_stride: stride }
    }

    /// Its next rows from `first` on, `rows` at most.
    pub(super) fn below(self, first: usize, rows: usize) -> Self {
        Self {
            elements: &self.elements[first * self.row_stride..],
            rows: rows.min(self.rows - first),
            ..self
        }
    }

    /// Its next columns from `first` on, `depth` at most.
    pub(super) fn after(self, first: usize, depth: usize) -> Self {
        Self {
            elements: &self.elements[first * self.column_stride..],
            depth: depth.min(self.depth - first),
            ..self
        }
    }
}
