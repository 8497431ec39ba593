"""The errors and warnings that a user can cause.

They carry facts, and are put into words at the edge: the command line names an option by its flag (``--n-pcs``), Python
by its argument (``n_pcs``). The command line prints an `InputError` without a traceback and exits with 2; every other
exception is a fault of this package and keeps its traceback.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self

__all__ = [
    "InputError",
    "InputWarning",
    "NotConvergedWarning",
    "ResourceError",
    "about_section",
    "as_argument",
    "as_flag",
    "in_words",
    "list_keys",
    "missing_package",
    "option",
    "own_names",
]

# how an option is named: by its name and, where there is one, its value
NameOption = Callable[..., str]
# what a caller calls options, and other words, of an error or a warning (`own_names`)
Names = Mapping[str, str | None]

# stands for an option inside a text until the text is shown; control characters do not occur in a user's own words
_MARK = re.compile("(`?)\x1f([^\x1e\x1f]+)(?:\x1e([^\x1f]*))?\x1f(`?)")
# where a sentence ends and the next one begins
_NEXT_SENTENCE = re.compile("(?<=[.!?]) (?=[A-Z`\x1f])")
# flags that have another name in Python
_FLAGS = {
    "bin_size": "bin",
    "domains": "domain",
    "every": "checkpoint-every",
    "from_key": "from",
    "genes": "gene",
    "kinds": "kind",
    "n": "n-genes",
}


def option(name: str, *value: Any) -> str:
    """Return a placeholder for an option, to be used inside the text of an error or a warning.

    Parameters
    ----------
    name
        The option as Python spells it, ``n_pcs``.
    value
        At most one: the value to name along with it, text, a number or a truth value.

    Examples
    --------
    >>> print(InputError("one section", "two", f"Name {option('sample_key')}."))
    Expected one section, found two. Name `sample_key`.
    >>> InputError("one section", "two", f"Name {option('sample_key')}.").sentence(as_flag)
    'Expected one section, found two. Name --sample-key.'
    """
    stated = f"\x1e{json.dumps(value[0])}" if value else ""
    return f"\x1f{name}{stated}\x1f"


def as_flag(name: str, *value: Any) -> str:
    """Name an option as the command line does: ``--n-pcs``, ``--correct center``, ``--no-whiten``."""
    flag = _FLAGS.get(name, name.replace("_", "-"))
    if not value or value[0] is True:
        return f"--{flag}"
    return f"--no-{flag}" if value[0] is False else f"--{flag} {value[0]}"


def as_argument(name: str, *value: Any) -> str:
    """Name an option as Python does: ```n_pcs```, ```correct='center'```, ```whiten=False```."""
    return f"`{name}={value[0]!r}`" if value else f"`{name}`"


def in_words(text: str, name_option: NameOption) -> str:
    """Return a text with the placeholders of `option` replaced by what ``name_option`` calls these options."""

    def name(match: re.Match[str]) -> str:
        before, known, value, after = match.groups()
        name = name_option(known, *(() if value is None else (json.loads(value),)))
        # no double quotes where the text quotes the option and `as_argument` does too
        return f"{before}{name.strip('`') if before and after else name}{after}"

    return _MARK.sub(name, text)


# of the callers, the innermost first
_names_in_force: ContextVar[tuple[Names, ...]] = ContextVar("_names_in_force", default=())


@contextmanager
def own_names(names: Names) -> Iterator[None]:
    """Let the errors and warnings of what is called inside use the names that its caller has.

    Where calls are nested, the names of the inner caller are replaced first, by those of the outer one.

    Parameters
    ----------
    names
        Options by the names that they have inside, and what they are called here: ``{"k": "n_components"}``. None
        stands for an option that there is not here: advice that speaks of it is left out, which is any sentence but the
        first of a warning. A key that is no name, such as ``obsm['spatial']``, is text to be replaced.

    Examples
    --------
    >>> with own_names({"k": "n_components", "seed": None}):
    ...     print(InputWarning(f"Two are empty. Lower {option('k')}. Or choose another {option('seed')}."))
    Two are empty. Lower `n_components`.
    """
    before = _names_in_force.set((names, *_names_in_force.get()))
    try:
        yield
    except InputError as error:
        # only the renamed error is shown, with the place where it was raised
        raise error.renamed(names).with_traceback(error.__traceback__) from error.__cause__
    finally:
        _names_in_force.reset(before)


# how warnings begin
_about: ContextVar[str] = ContextVar("_about", default="")


@contextmanager
def about_section(name: str) -> Iterator[None]:
    """Let the warnings of what is called inside begin with the section that they are about.

    Examples
    --------
    >>> with about_section("two"):
    ...     print(InputWarning("There are no counts."))
    In 'two': There are no counts.
    """
    before = _about.set(f"In {name!r}: ")
    try:
        yield
    finally:
        _about.reset(before)


def _with_names(text: str, names: Names, *, is_advice: bool = False) -> str:
    """Return a text, with its placeholders, in the words of a caller (`own_names`)."""

    def rename(name: str, *value: Any) -> str:
        return option(names.get(name) or name, *value)

    for words, others in names.items():
        if not words.isidentifier():
            text = text.replace(words, others or "")
    sentences = _NEXT_SENTENCE.split(text)
    kept = [] if is_advice else sentences[:1]
    for sentence in sentences[len(kept) :]:
        if all(names.get(mark[2], mark[2]) is not None for mark in _MARK.finditer(sentence)):
            kept.append(sentence)
    return in_words(" ".join(kept), rename)


_FACTS = ("expected", "found", "advice", "option", "outcome")  # of an `InputError`


class InputError(ValueError):
    """What the user gave cannot be used.

    In words: "Expected <expected>, found <found>. <outcome> <advice>", where `option` stands in front of what was
    expected: "Expected `--k` to be at least 2, found 1."

    Parameters
    ----------
    expected
        What would have been right; with ``option``, what follows "to be".
    found
        What was there instead.
    advice
        What to do next, as whole sentences.
    option
        The option whose value is wrong, as Python spells it.
    outcome
        What became of the user's files, as a whole sentence, where that is not obvious.
    """

    def __init__(
        self, expected: str, found: str, advice: str = "", option: str | None = None, outcome: str = ""
    ) -> None:
        super().__init__(expected, found, advice, option, outcome)  # the arguments that it is unpickled with
        self.expected, self.found, self.advice, self.option, self.outcome = expected, found, advice, option, outcome

    def sentence(self, name_option: NameOption = as_argument) -> str:
        """Return the error in words, with options named as ``name_option`` does.

        That is `as_flag` or `as_argument`; `option` leaves placeholders, so that the words can be part of another text.
        """
        return in_words(" ".join(filter(None, (self._problem(), self.outcome, self.advice))), name_option)

    def _problem(self) -> str:
        subject = "" if self.option is None else f"`{option(self.option)}` to be "
        return f"Expected {subject}{self.expected}, found {self.found}."

    def but(self, **facts: str) -> Self:
        """Return the same error with some of its facts replaced."""
        return type(self)(**({name: getattr(self, name) for name in _FACTS} | facts))

    def renamed(self, names: Names) -> Self:
        """Return the same error in the words of a caller, whose names are those of `own_names`."""
        given = {name: getattr(self, name) for name in _FACTS}
        facts = {name: _with_names(fact, names, is_advice=name == "advice") for name, fact in given.items() if fact}
        if self.option is not None:
            facts["option"] = names.get(self.option) or self.option
        return self.but(**facts)

    def __str__(self) -> str:
        return self.sentence()


class ResourceError(InputError):
    """The computer cannot do the work: no memory, a full disk, a folder that must not be written to.

    Parameters
    ----------
    problem
        What is lacking, as a whole sentence.
    advice, outcome
        As of an `InputError`.
    """

    def __init__(self, problem: str, advice: str = "", outcome: str = "") -> None:
        super().__init__(problem, "", advice, outcome=outcome)
        self.args = (problem, advice, outcome)  # those that it is unpickled with

    def _problem(self) -> str:
        return self.expected

    def but(self, **facts: str) -> Self:
        """Return the same error with some of its facts replaced; the problem is its fact ``expected``."""
        facts = {"expected": self.expected, "advice": self.advice, "outcome": self.outcome} | facts
        return type(self)(facts.pop("expected"), **facts)


def missing_package(package: str, purpose: str, install: str) -> ResourceError:
    """Return the error for an optional package that is not installed.

    Parameters
    ----------
    package
        Its name, or the names of several.
    purpose
        What it is needed for: "to read 'a.parquet'".
    install
        What pip has to install, such as an extra of this package; another sentence of advice may follow.
    """
    subject, verb, it = ("packages", "are", "them") if " and " in package else ("package", "is", "it")
    problem = f"The {subject} {package}, which {verb} needed {purpose}, {verb} not installed."
    return ResourceError(problem, f"Install {it} with: pip install {install}")


class InputWarning(UserWarning):
    """What the user gave is odd but usable; whole sentences say how it was understood and what may be wrong.

    Options inside the text are written with `option`, and named as the reader knows them when the warning is shown.
    """

    def __init__(self, text: str) -> None:
        text = f"{_about.get()}{text}"
        for names in _names_in_force.get():
            text = _with_names(text, names)
        super().__init__(text)

    def sentence(self, name_option: NameOption = as_argument) -> str:
        """Return the warning in words, with options named as ``name_option`` does."""
        return in_words(str(self.args[0]), name_option)

    def __str__(self) -> str:
        return self.sentence()


class NotConvergedWarning(InputWarning):
    """A fit whose result is used or written has not converged; commands have an exit code for it instead."""


def list_keys(keys: Iterable[str]) -> str:
    """Return the names of what there is, for the "found" half of an error: ``'X_pca', 'spatial'`` or ``none``."""
    return ", ".join(repr(key) for key in sorted(keys, key=str)) or "none"
