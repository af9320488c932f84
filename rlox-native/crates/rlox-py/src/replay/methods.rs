//! Shared methods of the buffers.

/// `#[pymethods]` of a buffer: its own methods and the named groups of shared ones.
///
/// - `ring`: sizes and truncation of all episodes, for a class with `fields` and a `buffer` of the type `$replay`;
/// - `steps`: transitions of several steps, and sequences;
/// - `push`: storing transitions with optional next observations, or `push_whole`, required ones;
/// - `sample`: drawing transitions without further output;
/// - `rows`: changed slots of a ring, and the rows of some slots;
/// - `state`: saving and restoring a buffer of only ring and stream.
///
/// `$plain` is appended to the arguments of the kernels' methods: `()` for a buffer that is generic
/// over its way of drawing and has no further input or output.
macro_rules! buffer_methods {
    ($class:ident, $replay:ident, $plain:tt, [] { $($body:tt)* }) => {
        #[pymethods]
        impl $class {
            $($body)*

            fn __len__(&self, py: Python<'_>) -> usize {
                py.detach(|| super::sampling::Drawn::len(&*lock(&self.buffer)))
            }

            /// Largest number of transitions.
            #[getter]
            fn capacity(&self) -> usize {
                self.fields.layout.capacity
            }
        }
    };
    ($class:ident, $replay:ident, $plain:tt, [ring $($group:ident)*] { $($body:tt)* }) => {
        buffer_methods!($class, $replay, $plain, [$($group)*] { $($body)*
            /// Number of envs stored in turn.
            #[getter]
            fn n_envs(&self) -> usize {
                self.fields.n_envs()
            }

            /// Truncate running episodes, as when the envs are reset.
            fn truncate_episodes(&self, py: Python<'_>) {
                py.detach(|| lock(&self.buffer).truncate_episodes());
            }

            /// Bytes of memory of the buffer when full.
            #[getter]
            fn nbytes(&self) -> PyResult<usize> {
                $replay::memory_bytes(&self.fields.layout).map_err(raise)
            }
        });
    };
    ($class:ident, $replay:ident, $plain:tt, [steps $($group:ident)*] { $($body:tt)* }) => {
        buffer_methods!($class, $replay, $plain, [$($group)*] { $($body)*
            /// Return the bytes of memory of such a buffer when full.
            #[staticmethod]
            #[pyo3(
                signature = (capacity, obs_dim, act_dim, **options),
                text_signature = "(capacity, obs_dim, act_dim, *, obs_dtype='float32', \
                                  act_dtype='float32', share_frames=False)"
            )]
            fn memory_bytes(
                capacity: &Bound<'_, PyAny>,
                obs_dim: &Bound<'_, PyAny>,
                act_dim: &Bound<'_, PyAny>,
                options: Option<&Bound<'_, PyDict>>,
            ) -> PyResult<usize> {
                let options = Options::parse(options, N_STEP)?;
                let fields = Fields::parse(capacity, obs_dim, act_dim, &options)?;
                $replay::memory_bytes(&fields.layout).map_err(raise)
            }

            /// Number of env steps of a sampled transition.
            #[getter]
            fn n_step(&self) -> usize {
                self.fields.n_step()
            }

            /// The discount of the rewards within those steps, and of the value after them.
            #[getter]
            fn gamma(&self) -> f64 {
                self.fields.layout.n_step.gamma
            }

            /// Draw sequences of steps of one env each and return a dict of arrays.
            #[pyo3(signature = (batch_size, seq_len, seed=None, *, cross_episodes=false))]
            fn sample_sequences<'py>(
                &self,
                py: Python<'py>,
                batch_size: &Bound<'py, PyAny>,
                seq_len: &Bound<'py, PyAny>,
                seed: Option<&Bound<'py, PyAny>>,
                cross_episodes: bool,
            ) -> PyResult<Bound<'py, PyDict>> {
                let request = Request { batch_size, seq_len, seed, cross_episodes };
                sample_sequences(py, &self.fields, &self.buffer, &request)
            }
        });
    };
    ($class:ident, $replay:ident, $plain:tt, [push $($group:ident)*] $body:tt) => {
        buffer_methods!(
            $class, $replay, $plain, [push_next [= None] [Option<&Bound<'py, PyAny>>] $($group)*] $body
        );
    };
    ($class:ident, $replay:ident, $plain:tt, [push_whole $($group:ident)*] $body:tt) => {
        buffer_methods!($class, $replay, $plain, [push_next [] [&Bound<'py, PyAny>] $($group)*] $body);
    };
    ($class:ident, $replay:ident, [$($plain:tt)*], [push_next [$($default:tt)*] [$next:ty] $($group:ident)*] { $($body:tt)* }) => {
        buffer_methods!($class, $replay, [$($plain)*], [$($group)*] { $($body)*
            /// Store one transition, replacing the oldest if the buffer is full.
            #[allow(clippy::useless_conversion, reason = "an optional argument converts to itself")]
            #[pyo3(signature = (obs, action, reward, terminated, truncated, next_obs $($default)*))]
            fn push<'py>(
                &self,
                py: Python<'py>,
                obs: &Bound<'py, PyAny>,
                action: &Bound<'py, PyAny>,
                reward: &Bound<'py, PyAny>,
                terminated: &Bound<'py, PyAny>,
                truncated: &Bound<'py, PyAny>,
                next_obs: $next,
            ) -> PyResult<()> {
                let (fields, next_obs) = (&self.fields, next_obs.into());
                let row = Rows::one(fields, obs, action, reward, terminated, truncated, next_obs)?;
                let row = row.transitions()?;
                py.detach(|| lock(&self.buffer).push(&row, $($plain)*)).map_err(raise_for_one)
            }

            /// Store several transitions, the rows of arrays.
            #[allow(clippy::useless_conversion, reason = "an optional argument converts to itself")]
            #[pyo3(signature = (obs, actions, rewards, terminated, truncated, next_obs $($default)*))]
            fn push_batch<'py>(
                &self,
                py: Python<'py>,
                obs: &Bound<'py, PyAny>,
                actions: &Bound<'py, PyAny>,
                rewards: &Bound<'py, PyAny>,
                terminated: &Bound<'py, PyAny>,
                truncated: &Bound<'py, PyAny>,
                next_obs: $next,
            ) -> PyResult<()> {
                let (fields, next_obs) = (&self.fields, next_obs.into());
                let rows =
                    Rows::many(fields, obs, actions, rewards, terminated, truncated, next_obs)?;
                let rows = rows.transitions()?;
                py.detach(|| lock(&self.buffer).push(&rows, $($plain)*)).map_err(raise)
            }
        });
    };
    ($class:ident, $replay:ident, [$($plain:tt)*], [sample $($group:ident)*] { $($body:tt)* }) => {
        buffer_methods!($class, $replay, [$($plain)*], [$($group)*] { $($body)*
            /// Draw transitions uniformly with replacement and return a dict of arrays.
            #[pyo3(signature = (batch_size, seed=None, *, out=None))]
            fn sample<'py>(
                &self,
                py: Python<'py>,
                batch_size: &Bound<'py, PyAny>,
                seed: Option<&Bound<'py, PyAny>>,
                out: Option<&Bound<'py, PyAny>>,
            ) -> PyResult<Bound<'py, PyDict>> {
                let draw = |buffer: &mut $replay, seed, batch: &mut Batch<'_>| {
                    buffer.sample(seed, batch, $(&mut $plain)*)
                };
                sample(py, &self.fields, &self.buffer, batch_size, seed, out, draw)
            }
        });
    };
    ($class:ident, $replay:ident, $plain:tt, [state $($group:ident)*] { $($body:tt)* }) => {
        buffer_methods!($class, $replay, $plain, [$($group)*] { $($body)*
            /// Return a copy of the buffer's complete state, as a dict of arrays.
            fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
                export(py, &self.fields, &self.buffer, |_| ()).map(|(state, ())| state)
            }

            /// Restore a `state()` exactly; an impossible one is refused and changes nothing.
            fn set_state(&self, py: Python<'_>, state: &Bound<'_, PyAny>) -> PyResult<()> {
                let state = parse_dict(state, "state", KEYS, Some(OPTIONAL))?;
                let Saved { rows, has_next_obs, position, stream } =
                    Saved::parse(state, &self.fields)?;
                let rows = rows.transitions()?;
                py.detach(|| {
                    lock(&self.buffer).restore(&rows, &has_next_obs, position, stream, &())
                })
                .map_err(raise)
            }

            /// Return the part of `state()` without a row per slot.
            fn rest<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
                let (position, stream) = py.detach(|| {
                    let buffer = lock(&self.buffer);
                    (buffer.ring().position(), buffer.stream().clone())
                });
                super::state::rest(py, &self.fields, position, &stream)
            }
        });
    };
    ($class:ident, $replay:ident, $plain:tt, [rows $($group:ident)*] { $($body:tt)* }) => {
        buffer_methods!($class, $replay, $plain, [$($group)*] { $($body)*
            /// Return a mark of the present, the number of filled slots, and those that may have
            /// changed since an older mark; 0 means all.
            fn changed_rows(
                &self,
                py: Python<'_>,
                since: u64,
            ) -> (u64, usize, Vec<(usize, usize)>) {
                py.detach(|| {
                    let buffer = lock(&self.buffer);
                    let ring = buffer.ring();
                    super::state::changed_rows(ring.written(), ring.len(), ring.changed(since))
                })
            }

            /// Return a copy of the part of `state()` with a row per slot, for some slots.
            fn rows<'py>(
                &self,
                py: Python<'py>,
                start: usize,
                stop: usize,
            ) -> PyResult<Bound<'py, PyDict>> {
                super::state::rows(py, &self.fields, (start, stop), |batch, has_next_obs| {
                    lock(&self.buffer).ring().export_rows(start..stop, batch, has_next_obs)
                })
            }
        });
    };
}

pub(super) use buffer_methods;
