"""Named sets of connection properties, in $XDG_CONFIG_HOME/fencepost/profiles.toml.

A profile holds no secret: it names the file or the environment variable that has one, or a file for --command-config.
"""

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

SECRET = re.compile(r"password|secret|jaas|keystore\.key$|key\.pem$|private", re.IGNORECASE)
"""Properties whose values are not written into a profile, nor shown."""


class ProfileError(Exception):
    """A profile that does not exist or cannot be used; the message says what to do."""


class Profile(NamedTuple):
    """One set. `properties` have Kafka's names; the two other mappings name where the value of a property is."""

    properties: Mapping[str, str] = {}
    from_file: Mapping[str, str] = {}
    from_environment: Mapping[str, str] = {}
    command_config: str | None = None

    def values(self) -> dict[str, Any]:
        """All properties with their values, read now. Raises ProfileError."""
        values: dict[str, Any] = {}
        if self.command_config is not None:
            values |= _file_of_properties(self.command_config)
        values |= self.properties
        for name, path in self.from_file.items():
            try:
                values[name] = Path(path).read_text("utf-8").rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                raise ProfileError(f"cannot read {name} from {path}: {error}") from error
        for name, variable in self.from_environment.items():
            if variable not in os.environ:
                raise ProfileError(f"{name} comes from the environment variable {variable}, which is not set")
            values[name] = os.environ[variable]
        return values


class Profiles(NamedTuple):
    """All profiles by name, and the name of the current one."""

    by_name: Mapping[str, Profile] = {}
    current: str | None = None

    def named(self, name: str) -> Profile:
        """Raises ProfileError."""
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "there is none"
            raise ProfileError(
                f"profile {name!r} does not exist ({known}); `fencepost profile create {name}` creates it"
            )
        return self.by_name[name]


def path() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "fencepost" / "profiles.toml"


def read() -> Profiles:
    """The profiles; none if there is no file. Raises ProfileError for a file that cannot be read."""
    try:
        text = path().read_text("utf-8")
    except FileNotFoundError:
        return Profiles()
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"cannot read the profiles in {path()}: {error}") from error
    import tomllib  # here: without a file, no command needs it

    try:
        content = tomllib.loads(text)
        by_name = {name: Profile(**table) for name, table in content.get("profiles", {}).items()}
    except (tomllib.TOMLDecodeError, TypeError, AttributeError) as error:
        raise ProfileError(f"{path()} is not a file of profiles: {error}; correct it, or delete it") from error
    return Profiles(by_name, content.get("current"))


def write(profiles: Profiles) -> None:
    """Replace the file, at once, readable by its owner only. Raises ProfileError."""
    lines = [] if profiles.current is None else [f"current = {_text(profiles.current)}"]
    for name, profile in sorted(profiles.by_name.items()):
        lines += ["", f"[profiles.{_text(name)}]"]
        if profile.command_config is not None:
            lines.append(f"command_config = {_text(profile.command_config)}")
        for field in ("properties", "from_file", "from_environment"):
            entries = getattr(profile, field).items()
            lines += [f"{field}.{_text(key)} = {_text(value)}" for key, value in entries]
    folder = path().parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, written = tempfile.mkstemp(dir=folder)  # its mode is 0600
        with open(handle, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        os.replace(written, path())
    except OSError as error:
        raise ProfileError(f"cannot write the profiles to {path()}: {error}") from error


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _file_of_properties(file: str) -> dict[str, Any]:
    from fencepost.broker.config.fields import ConfigError
    from fencepost.broker.config.sources import from_file

    try:
        return {given.name: given.raw for given in from_file(Path(file))}
    except ConfigError as error:
        raise ProfileError(str(error)) from error
