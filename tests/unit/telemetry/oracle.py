# SPDX-License-Identifier: Apache-2.0
"""Reads one snapshot in both exposition formats with the parsers of
python3-prometheus-client and checks that they tell the same.
Usage: oracle.py <text 0.0.4 file> <openmetrics file> <series count>
Exit 77: the parsers are not installed."""
import sys

try:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_parse
    from prometheus_client.parser import text_string_to_metric_families as text_parse
except ImportError:
    sys.exit(77)


def samples(families):
    out = {}
    for family in families:
        for s in family.samples:
            key = (s.name, tuple(sorted(s.labels.items())))
            assert key not in out, f"twice: {key}"
            out[key] = s.value
    return out


text = samples(text_parse(open(sys.argv[1]).read()))
opened_families = list(open_parse(open(sys.argv[2]).read()))
opened = samples(opened_families)
assert text == opened, sorted(set(text.items()) ^ set(opened.items()))[:10]
assert len(text) == int(sys.argv[3]), (len(text), sys.argv[3])
units = {f.name: f.unit for f in opened_families if f.unit}
assert "tandem_ttft_seconds" not in opened or units["tandem_ttft_seconds"] == "seconds"
for name, labels in text:
    if name.endswith("_count") and (name[:-6] + "_sum", labels) in text:
        inf = tuple(sorted(labels + (("le", "+Inf"),)))
        assert text[name, labels] == text[name[:-6] + "_bucket", inf], name
print(f"{len(text)} samples, {len(units)} units")
