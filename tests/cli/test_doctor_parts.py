"""Tables behind ``nemo-lens doctor``: version specifiers, endpoints, redaction, texts."""

from __future__ import annotations

import re
import string
import sys
import time
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.util.re import parse_env_headers

from nemo_lens.sdk.cli import doctor
from nemo_lens.sdk.cli.doctor.findings import Finding, merged
from nemo_lens.sdk.cli.doctor.redaction import Secrets, header_pairs, shown, shown_url
from nemo_lens.sdk.cli.doctor.requirements import unmet
from nemo_lens.sdk.cli.doctor.targets import Target, proxy_of, target_of
from nemo_lens.sdk.cli.doctor.verdicts import TEXTS

DOCS = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
# Good news about a part, called after it.
_SAYS_ITS_SECTION = {"arrives", "backend", "identity", "span_groups", "versions"}


@pytest.mark.parametrize(
    ("requirement", "version", "met"),
    [
        ("a==1.45.2", "1.45.2", True),
        ("a==1.45.2", "1.45.1", False),
        ("a==1.45", "1.45.0", True),
        ("a==0.66b2", "0.66b1", False),
        ("a==2.1", "2.1+cu118", True),
        ("a==1.4.*", "1.4.7", True),
        ("a!=1.4.*", "1.4.7", False),
        ("a~=1.45.2", "1.45.9", True),
        ("a~=1.45.2", "1.46.0", False),
        ("a~=1.15", "1.45.2", True),
        ("a<2,>=1.38", "1.45.2", True),
        ("a<2,>=1.38", "2.0.0", False),
        ("a<2,>=1.38", "1.9", False),
        ("a (>=1.0)", "1.0.0", True),
        ("a[extra]>=1", "0.9", False),
        ("a", "0.1", True),
        ("A_b.c>=1", "0.9", False),
        ("a>=9; extra == 'all'", "1", True),
        ("a>=9; python_version < '3'", "1", True),
        ("a>=9; python_version >= '3.10'", "1", False),
        (f"a>=9; python_version == '{sys.version_info.major}.{sys.version_info.minor}'", "1", False),
        ("a>=9; sys_platform == 'win32' and python_version >= '3'", "1", True),
    ],
)
def test_requirements(requirement: str, version: str, met: bool) -> None:
    """What distributions of OpenTelemetry write in their metadata is understood as installers do."""
    assert (unmet([requirement], {"a": version, "a-b-c": version}) == []) is met


def test_a_requirement_that_is_absent() -> None:
    """What is not installed at all is told from what does not fit."""
    assert unmet(["Left.Pad>=9 ; python_version>='3'"], {}) == [("left-pad", ">=9", None)]


@pytest.mark.parametrize(
    ("endpoint", "transport", "target"),
    [
        ("http://h:4318/v1/traces", "http/protobuf", Target("h", 4318)),
        ("http://h/v1/traces", "http/protobuf", Target("h", 80)),
        ("https://user:pw@h", "http/protobuf", Target("h", 443)),
        ("http://[::1]:4317", "grpc", Target("::1", 4317)),
        ("http://h", "grpc", Target("h", 443)),
        ("h:4317", "grpc", Target("h", 4317)),
        ("h", "grpc", Target("h", 443)),
        ("[::1]:4317", "grpc", Target("::1", 4317)),
        ("dns:///h:4317", "grpc", Target("h", 4317)),
        ("dns://9.9.9.9/h:4317", "grpc", Target("h", 4317)),
        ("ipv4:127.0.0.1:4317", "grpc", Target("127.0.0.1", 4317)),
        ("unix:/run/otel.sock", "grpc", None),
        ("xds:///collector", "grpc", None),
    ],
)
def test_where_an_endpoint_leads(endpoint: str, transport: str, target: Target | None) -> None:
    """Host and port of every kind of endpoint that the exporters take."""
    assert target_of(endpoint, transport) == target


@pytest.mark.parametrize(
    ("environ", "variable"),
    [
        ({}, ""),
        ({"http_proxy": "http://p:1"}, "http_proxy"),
        ({"grpc_proxy": "http://p:1", "https_proxy": "http://q:1"}, "grpc_proxy"),
        ({"http_proxy": "http://p:1", "no_proxy": ".example.com, cluster.local"}, ""),
        ({"http_proxy": "http://p:1", "no_proxy": "cluster.local", "no_grpc_proxy": "other"}, "http_proxy"),
        ({"HTTP_PROXY": "http://p:1"}, ""),
    ],
)
def test_the_proxy_of_grpc(environ: dict[str, str], variable: str) -> None:
    """gRPC reads the variables in lower case, its own first."""
    assert proxy_of("http://otel.cluster.local:4317", Target("otel.cluster.local", 4317), "grpc", environ) == variable


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=b, c = d=e ,f", "a=[REDACTED],c=[REDACTED],[REDACTED]"),
        ("OTEL_EXPORTER_OTLP_LOGS_HEADERS", "", ""),
        (
            "OTEL_RESOURCE_ATTRIBUTES",
            "a=1,password=x,b.api%2Dkey=y,c",
            "a=1,password=[REDACTED],b.api%2Dkey=[REDACTED],[REDACTED]",
        ),
        ("OTEL_RESOURCE_ATTRIBUTES", "a=1,c,image=h/nemo:24.07@sha256:ab", "a=1,c,image=h/nemo:24.07@sha256:ab"),
        ("OTEL_RESOURCE_ATTRIBUTES", "u=http%3A%2F%2Fa%3Ab%40h", "u=http://[REDACTED]@h"),
        ("OTEL_EXPORTER_OTLP_HEADRES", "a=b", "a=[REDACTED]"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization: Basic eA==,Bad Key=x,=y", "[REDACTED],[REDACTED],[REDACTED]"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "user:pw@h:1", "[REDACTED]@h:1"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "h:4317?api_key=x", "h:4317?[REDACTED]"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://u:a/b c@d@h", "http://[REDACTED]@h"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h?mail=a@b", "http://[REDACTED]"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "unix:/run/otel.sock", "unix:/run/otel.sock"),
        ("all_proxy", "user:pw@h:1", "[REDACTED]@h:1"),
        ("NO_PROXY", "a@b", "a@b"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://h:1/v1/traces", "https://h:1/v1/traces"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://u:p@h:1/x?k=v&l=w#f", "https://[REDACTED]@h:1/x?[REDACTED]"),
        ("OTEL_VENDOR_TOKEN", "x", "[REDACTED]"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/etc/ca.pem", "/etc/ca.pem"),
    ],
)
def test_what_is_shown_of_a_variable(name: str, value: str, expected: str) -> None:
    """Names of headers, not their values; URLs without credentials and query."""
    assert shown(name, value) == expected


def test_secrets_are_taken_out_of_messages() -> None:
    """As they stand in the variable and as they are sent, encoded or not."""
    secrets = Secrets({"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20abc%2Fdef,x=y"})
    assert secrets.scrub("sent ('authorization', 'Bearer abc/def')") == "sent ('authorization', '[REDACTED]')"
    assert secrets.scrub("token abc/def, y") == "token [REDACTED], y"
    assert shown_url("called http://u:p@h/x?t=1 twice") == "called http://[REDACTED]@h/x?[REDACTED] twice"


@given(st.text(alphabet='aZ09-_:= \t,;%2"\\/é@!', max_size=40))
@example("Authorization: Basic dXNlcjpTRUNSRVRQVw==")
@example("Bad Key=x,a=b c,=y,c=d=e,f,g=,a=b;c")
def test_headers_are_read_as_the_exporters_read_them(text: str) -> None:
    """A header is listed when it is sent, and only then; its name must still be one after it is decoded."""
    sent = parse_env_headers(text, liberal=True)
    listed = [name for name, _ in header_pairs(text) if name]
    # Names are decoded where the value, too, is encoded as it should be.
    names = [{name.lower(), unquote(name).strip().lower()} for name in listed]
    assert all(each & set(sent) for each in names)
    assert all(any(name in each for each in names) for name in sent if re.fullmatch(r"[-\w!]+", name, re.ASCII))


def test_long_texts_take_no_more_than_their_length() -> None:
    """Ten times the text takes some ten times as long, not a hundred times."""

    def seconds(text: str) -> float:
        start = time.process_time()
        for name in ("OTEL_RESOURCE_ATTRIBUTES", "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_X"):
            shown(name, text)
            Secrets({name: text}).scrub(text)
        return time.process_time() - start

    for piece in ("aaaaaaaaaa", "k=http://v,", "://", "://a@b?c", "token=value%zz,", "a b\t"):
        short, long = piece * (20_000 // len(piece)), piece * (200_000 // len(piece))
        assert min(seconds(long) for _ in range(3)) < 40 * min(seconds(short) for _ in range(3)) + 0.05, piece


def test_findings_that_differ_by_their_signal_are_one() -> None:
    """Three signals with one fault are one thing to mend; what is good comes first, what is worst last."""
    found = merged(
        [
            Finding("problem", "refused", "nothing listens", "start it", ("traces",)),
            Finding("ok", "backend", "loads"),
            Finding("problem", "refused", "nothing listens", "start it", ("logs",)),
            Finding("warning", "unwell", "busy", "", ("metrics",)),
        ]
    )
    assert [(finding.code, finding.signals) for finding in found] == [
        ("backend", ()),
        ("unwell", ("metrics",)),
        ("refused", ("traces", "logs")),
    ]


def test_every_problem_has_a_remedy() -> None:
    """Who is told what is wrong is told what to do about it."""
    for code, text in TEXTS.items():
        assert bool(text.remedy) is (text.level != "ok"), code
        for part in (text.message, text.remedy):
            assert all(name is None or name.isidentifier() for _, name, _, _ in string.Formatter().parse(part)), code


def test_every_code_is_documented() -> None:
    """What a machine is told by is in the table of the documentation: each code that the source can give."""
    source = "".join(path.read_text(encoding="utf-8") for path in Path(doctor.__file__ or "").parent.glob("*.py"))
    given = {*TEXTS, *re.findall(r"Finding\(\s*(?:OK|WARNING|PROBLEM),\s*\"(\w+)\"", source)} - _SAYS_ITS_SECTION
    documented = re.findall(r"`(\w+)`", "".join(line for line in DOCS.splitlines() if line.startswith("| `")))
    assert given - set(documented) == set()
