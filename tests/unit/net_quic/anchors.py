# SPDX-License-Identifier: Apache-2.0
"""usage: anchors.py CERTIFICATE KEY NAME...

OpenSSL as client and server, both in memory: whoever trusts the file, or the
authority alone that stands last in it, takes the server for each name by the
strict rules of RFC 5280, and for no other; who trusts nothing takes none."""
import ssl
import sys


def served(path):
    with open(path, encoding="ascii") as f:
        end = "-----END CERTIFICATE-----\n"
        return [part + end for part in f.read().split(end) if part.strip()]


def turn(side):
    try:
        side.do_handshake()
        return True
    except ssl.SSLWantReadError:
        return False


def is_taken(server, anchors, name):
    """One handshake of a client that trusts these anchors."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    client.verify_flags &= ~getattr(ssl, "VERIFY_X509_PARTIAL_CHAIN", 0)
    if anchors:
        client.load_verify_locations(cadata="".join(anchors))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    s = server.wrap_bio(to_server, to_client, server_side=True)
    c = client.wrap_bio(to_client, to_server, server_hostname=name)
    try:
        for _ in range(10):
            if turn(c) & turn(s):
                return True
    except ssl.SSLCertVerificationError:
        return False
    raise AssertionError("the handshake does not end")


def main():
    path, key, *names = sys.argv[1:]
    chain = served(path)
    assert len(chain) == 2, len(chain)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path, key)
    for anchors in (chain, chain[1:]):
        for name in names:
            assert is_taken(server, anchors, name), (name, len(anchors))
        for name in ("other.test", "sub." + names[0], "10.9.0.2", "fd00::2"):
            assert not is_taken(server, anchors, name), (name, len(anchors))
    assert not is_taken(server, [], names[0])


main()
