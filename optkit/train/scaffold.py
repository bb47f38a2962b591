"""What a monitored session needs of its graph, and how such sessions come to be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from optkit import logging, summary
from optkit.errors import InvalidArgumentError
from optkit.graph import GraphKeys, get_default_graph
from optkit.ops.control import group
from optkit.runtime import Session
from optkit.train.checkpoints import as_path, get_checkpoint_state
from optkit.train.saver import Saver
from optkit.train.training_state import read_extra
from optkit.variables import (
    global_variables,
    global_variables_initializer,
    local_variables_initializer,
    report_uninitialized_variables,
)

__all__ = [
    "ChiefSessionCreator",
    "Scaffold",
    "SessionCreator",
    "WorkerSessionCreator",
    "restore_latest",
]


class Scaffold:
    """The operations that start a session, and its saver; what is not given is made or found.

    Args:
        init_op: sets variables where there is no checkpoint; all global variables if None.
        init_feed_dict: what to feed to it.
        init_fn: a function of the Scaffold and the session, called after it.
        ready_op: gives the names of variables that still hold nothing.
        ready_for_local_init_op: the same, before the local variables are set.
        local_init_op: sets what no checkpoint holds, in every session; all local variables if None.
        summary_op: the summary to write; all of the collection SUMMARIES if None.
        saver: the Saver; one of all variables if None.
        copy_from_scaffold: a Scaffold to take from what is not given.
        local_init_feed_dict: what to feed to local_init_op.

    What is None is looked up first in the graph's collection of its kind (INIT_OP, SAVERS, ...).

    Raises:
        TypeError: copy_from_scaffold is no Scaffold.
    """

    def __init__(
        self,
        init_op: Any = None,
        init_feed_dict: Mapping[Any, Any] | None = None,
        init_fn: Callable[[Scaffold, Session], Any] | None = None,
        ready_op: Any = None,
        ready_for_local_init_op: Any = None,
        local_init_op: Any = None,
        summary_op: Any = None,
        saver: Any = None,
        copy_from_scaffold: Scaffold | None = None,
        local_init_feed_dict: Mapping[Any, Any] | None = None,
    ) -> None:
        other = copy_from_scaffold
        if other is not None and not isinstance(other, Scaffold):
            raise TypeError(f"copy_from_scaffold: expected a Scaffold, got {other!r}")

        def chosen(value: Any, name: str) -> Any:
            return value if value is not None or other is None else getattr(other, name)

        self._init_op = chosen(init_op, "_init_op")
        self._init_feed_dict = chosen(init_feed_dict, "_init_feed_dict")
        self._user_init_fn = chosen(init_fn, "_user_init_fn")
        self._ready_op = chosen(ready_op, "_ready_op")
        self._ready_for_local_init_op = chosen(ready_for_local_init_op, "_ready_for_local_init_op")
        self._local_init_op = chosen(local_init_op, "_local_init_op")
        self._local_init_feed_dict = chosen(local_init_feed_dict, "_local_init_feed_dict")
        self._summary_op = chosen(summary_op, "_summary_op")
        self._saver = chosen(saver, "_saver")

    def finalize(self) -> Scaffold:
        """Make what is missing, and refuse further operations in the graph; gives itself."""
        if self._init_op is None:
            self._init_op = self.get_or_default(
                "init_op", GraphKeys.INIT_OP, global_variables_initializer
            )
        if self._ready_op is None:
            self._ready_op = self.get_or_default(
                "ready_op", GraphKeys.READY_OP, report_uninitialized_variables
            )
        if self._ready_for_local_init_op is None:
            self._ready_for_local_init_op = self.get_or_default(
                "ready_for_local_init_op",
                GraphKeys.READY_FOR_LOCAL_INIT_OP,
                lambda: report_uninitialized_variables(global_variables()),
            )
        if self._local_init_op is None:
            self._local_init_op = self.get_or_default(
                "local_init_op", GraphKeys.LOCAL_INIT_OP, self.default_local_init_op
            )
        if self._summary_op is None:
            self._summary_op = self.get_or_default(
                "summary_op", GraphKeys.SUMMARY_OP, summary.merge_all
            )
        if self._saver is None:
            self._saver = self.get_or_default(
                "saver", GraphKeys.SAVERS, lambda: Saver(sharded=True, allow_empty=True)
            )
        self._saver.build()
        get_default_graph().finalize()
        return self

    @staticmethod
    def get_or_default(
        arg_name: str, collection_key: str, default_constructor: Callable[[], Any]
    ) -> Any:
        """The one item of a collection, else what the function makes, which joins it.

        Raises:
            RuntimeError: the collection has several items.
        """
        graph = get_default_graph()
        found = graph.get_collection(collection_key)
        if len(found) > 1:
            raise RuntimeError(
                f"{arg_name}: the collection {collection_key!r} has {len(found)} items; give the "
                "Scaffold the one to use"
            )
        if found:
            return found[0]
        made = default_constructor()
        if made is not None:
            graph.add_to_collection(collection_key, made)
        return made

    @staticmethod
    def default_local_init_op() -> Any:
        """An operation that sets all local variables."""
        return group(local_variables_initializer(), name="local_init")

    @property
    def init_op(self) -> Any:
        """See the class."""
        return self._init_op

    @property
    def init_feed_dict(self) -> Mapping[Any, Any] | None:
        """See the class."""
        return self._init_feed_dict  # type: ignore[no-any-return]

    @property
    def init_fn(self) -> Callable[[Session], Any] | None:
        """A function of the session that calls the user's with the Scaffold too; None for none."""
        own = self._user_init_fn
        return None if own is None else lambda session: own(self, session)

    @property
    def ready_op(self) -> Any:
        """See the class."""
        return self._ready_op

    @property
    def ready_for_local_init_op(self) -> Any:
        """See the class."""
        return self._ready_for_local_init_op

    @property
    def local_init_op(self) -> Any:
        """See the class."""
        return self._local_init_op

    @property
    def local_init_feed_dict(self) -> Mapping[Any, Any] | None:
        """See the class."""
        return self._local_init_feed_dict  # type: ignore[no-any-return]

    @property
    def summary_op(self) -> Any:
        """See the class."""
        return self._summary_op

    @property
    def saver(self) -> Any:
        """See the class."""
        return self._saver


def restore_latest(
    saver: Any, session: Session, checkpoint_dir: Any
) -> tuple[str, Mapping[str, Any]] | None:
    """Restore a directory's newest checkpoint that is whole.

    A damaged one is passed over, with an error in the log. Whoever trains there meanwhile may
    delete old ones; then it is looked at anew.

    Returns:
        Its prefix, and what was saved beside the variables; None where there is no checkpoint yet.

    Raises:
        ValueError: there are checkpoints on record, and none can be read.
        NotFoundError, InvalidArgumentError: it does not fit the variables, as in `Saver.restore`.
    """
    state = get_checkpoint_state(checkpoint_dir)
    if state is None:
        return None
    others = (p for p in reversed(state.all_model_checkpoint_paths))
    complaints = []
    for prefix in dict.fromkeys([state.model_checkpoint_path, *others]):
        try:
            saver.restore(session, prefix)
            saved = read_extra(as_path(prefix))
        except InvalidArgumentError:  # it can be read, and belongs to another model
            raise
        except (ValueError, OSError) as error:
            logging.error("a checkpoint cannot be read: %s", error)
            complaints.append(str(error))
            continue
        folder = as_path(state.model_checkpoint_path).parent
        saver.recover_last_checkpoints(
            [p for p in state.all_model_checkpoint_paths if as_path(p).parent == folder]
        )
        if isinstance(saver, Saver):
            saver.recover_best_checkpoints(
                {
                    p: metric
                    for p, metric in state.best_model_checkpoint_paths.items()
                    if as_path(p).parent == folder
                }
            )
        return prefix, ({} if saved is None else saved.extra)
    if get_checkpoint_state(checkpoint_dir) != state:
        return restore_latest(saver, session, checkpoint_dir)
    raise ValueError(
        f"checkpoint_dir: none of the checkpoints on record in {checkpoint_dir} can be read: "
        + "; ".join(complaints)
    )


class SessionCreator:
    """Makes the session of a `MonitoredSession`.

    Attributes:
        restored: what hooks and loops had saved in the checkpoint that the session goes on from;
            None where there is none.
    """

    restored: Mapping[str, Any] | None = None

    def create_session(self) -> Session:
        """A session whose variables hold values.

        Raises:
            NotImplementedError: a class of one's own lacks this method.
        """
        raise NotImplementedError(f"{type(self).__name__} has no create_session")


class ChiefSessionCreator(SessionCreator):
    """Makes a session from the latest checkpoint, or from the initial values where there is none.

    Args:
        scaffold: a Scaffold; a new one if None.
        master: only "" works: this process.
        config: a `ConfigProto`.
        checkpoint_dir: the directory of the checkpoints.
        checkpoint_filename_with_path: the prefix of the checkpoint to use instead.
    """

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: Any = None,
        checkpoint_dir: Any = None,
        checkpoint_filename_with_path: Any = None,
    ) -> None:
        if scaffold is not None and not isinstance(scaffold, Scaffold):
            raise TypeError(f"scaffold: expected a Scaffold, got {scaffold!r}")
        self._scaffold = scaffold if scaffold is not None else Scaffold()
        self._master = master
        self._config = config
        self._checkpoint_dir = checkpoint_dir
        self._checkpoint = checkpoint_filename_with_path

    def create_session(self) -> Session:
        """See the class.

        Raises:
            RuntimeError: variables hold nothing after initialisation.
            ValueError, NotFoundError, InvalidArgumentError: as `restore_latest`.
        """
        scaffold = self._scaffold
        scaffold.finalize()
        session = Session(self._master, config=self._config)
        try:
            self.restored = self._restore(session)
            if self.restored is None:
                if scaffold.init_op is not None:
                    session.run(scaffold.init_op, scaffold.init_feed_dict)
                if scaffold.init_fn is not None:
                    scaffold.init_fn(session)
            _require_ready(session, scaffold.ready_for_local_init_op, "before local_init_op")
            if scaffold.local_init_op is not None:
                session.run(scaffold.local_init_op, scaffold.local_init_feed_dict)
            _require_ready(session, scaffold.ready_op, "after initialisation")
        except BaseException:
            session.close()
            raise
        return session

    def _restore(self, session: Session) -> Mapping[str, Any] | None:
        saver = self._scaffold.saver
        if self._checkpoint is not None:
            saver.restore(session, self._checkpoint)
            saved = read_extra(as_path(self._checkpoint))
            return {} if saved is None else saved.extra
        if self._checkpoint_dir is None:
            return None
        found = restore_latest(saver, session, self._checkpoint_dir)
        if found is None:
            return None
        logging.info("going on from %s", found[0])
        return found[1]


class WorkerSessionCreator(ChiefSessionCreator):
    """Makes a session that saves nothing and restores nothing.

    A session lives in its own process, so a worker starts from the initial values itself; what the
    chief has is sent to it by whoever runs the job.

    Args:
        scaffold: a Scaffold; a new one if None.
        master: only "" works: this process.
        config: a `ConfigProto`.
        max_wait_secs: accepted as in TF; there is nothing to wait for.
    """

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: Any = None,
        max_wait_secs: float = 30 * 60,
    ) -> None:
        super().__init__(scaffold, master, config)


def _require_ready(session: Session, op: Any, when: str) -> None:
    if op is None:
        return
    names = [n.decode() if isinstance(n, bytes) else str(n) for n in session.run(op)]
    if names:
        raise RuntimeError(
            f"variables hold nothing {when}: {', '.join(names)}; is init_op one of all variables?"
        )
