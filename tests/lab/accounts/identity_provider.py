"""A SAML identity provider: metadata, and responses that are really signed, right or wrong in one thing."""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from lxml import etree
from onelogin.saml2.constants import OneLogin_Saml2_Constants as Names
from onelogin.saml2.utils import OneLogin_Saml2_Utils

ENTITY = "https://id.example.org/saml"
SIGN_IN = "https://id.example.org/saml/sign-in"
EMAIL = "urn:oid:0.9.2342.19200300.100.1.3"
SPACES = 'xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion" xmlns:samlp="urn:oasis:names:tc:SAML:2.0:protocol"'
XSI = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:xs="http://www.w3.org/2001/XMLSchema"'


@dataclass(frozen=True)
class Told:
    """What a response says; each test changes one thing."""

    to: str = ""  # the request's id
    email: str = "owner@example.org"
    name: str = "42"
    name_format: str = "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent"
    audience: str = "http://testserver/accounts/saml/sso/metadata/"
    acs: str = "http://testserver/accounts/saml/sso/acs/"
    issuer: str = ENTITY
    minutes: int = 5  # from now on until it expires
    attributes: dict[str, str] = field(default_factory=dict)
    inside: str = ""  # what the confirmation names as the request's id, if not ``to``
    assertion: str = field(default_factory=lambda: f"_{uuid.uuid4().hex}")

    def but(self, **changes: Any) -> Told:
        return replace(self, **changes)


class IdentityProvider:
    @cached_property
    def key(self) -> rsa.RSAPrivateKey:
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)

    @cached_property
    def key_text(self) -> str:
        form = serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()

    @cached_property
    def certificate(self) -> str:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "id.example.org")])
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(self.key.public_key())
        builder = builder.serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    def metadata(self, entity: str = ENTITY) -> str:
        body = "".join(self.certificate.splitlines()[1:-1])
        return (
            f'<md:EntityDescriptor xmlns:md="urn:oasis:names:tc:SAML:2.0:metadata" entityID="{entity}">'
            '<md:IDPSSODescriptor protocolSupportEnumeration="urn:oasis:names:tc:SAML:2.0:protocol"><md:KeyDescriptor use="signing">'
            f'<ds:KeyInfo xmlns:ds="http://www.w3.org/2000/09/xmldsig#"><ds:X509Data><ds:X509Certificate>{body}</ds:X509Certificate></ds:X509Data>'
            f'</ds:KeyInfo></md:KeyDescriptor><md:SingleSignOnService Binding="{Names.BINDING_HTTP_REDIRECT}" Location="{SIGN_IN}"/>'
            "</md:IDPSSODescriptor></md:EntityDescriptor>"
        )

    def sign(self, xml: str, algorithm: str = Names.RSA_SHA256, digest: str = Names.SHA256) -> str:
        signed = OneLogin_Saml2_Utils.add_sign(xml, self.key_text, self.certificate, False, algorithm, digest)
        return (signed.decode() if isinstance(signed, bytes) else signed).partition("?>\n")[2] or signed.decode()

    def assertion(self, told: Told) -> str:
        now, until = moment(-1), moment(told.minutes)
        attributes = "".join(
            f'<saml:Attribute Name="{name}"><saml:AttributeValue xsi:type="xs:string">{value}</saml:AttributeValue></saml:Attribute>'
            for name, value in {EMAIL: told.email, "urn:oid:2.5.4.42": "Ada", "urn:oid:2.5.4.4": "Byron", **told.attributes}.items()
        )
        to = told.inside or told.to
        answers = f' InResponseTo="{to}"' if to else ""
        return (
            f'<saml:Assertion {SPACES} {XSI} ID="{told.assertion}" Version="2.0" IssueInstant="{now}"><saml:Issuer>{told.issuer}</saml:Issuer>'
            f'<saml:Subject><saml:NameID Format="{told.name_format}">{told.name}</saml:NameID>'
            '<saml:SubjectConfirmation Method="urn:oasis:names:tc:SAML:2.0:cm:bearer">'
            f'<saml:SubjectConfirmationData NotOnOrAfter="{until}" Recipient="{told.acs}"{answers}/></saml:SubjectConfirmation></saml:Subject>'
            f'<saml:Conditions NotBefore="{moment(-60)}" NotOnOrAfter="{until}"><saml:AudienceRestriction>'
            f"<saml:Audience>{told.audience}</saml:Audience>"
            f'</saml:AudienceRestriction></saml:Conditions><saml:AuthnStatement AuthnInstant="{now}" SessionIndex="_1"><saml:AuthnContext>'
            "<saml:AuthnContextClassRef>urn:oasis:names:tc:SAML:2.0:ac:classes:Password</saml:AuthnContextClassRef></saml:AuthnContext>"
            f"</saml:AuthnStatement><saml:AttributeStatement>{attributes}</saml:AttributeStatement></saml:Assertion>"
        )

    def response(self, told: Told, assertion: str, more: str = "") -> str:
        answers = f' InResponseTo="{told.to}"' if told.to else ""
        return (
            f'<samlp:Response {SPACES} ID="_{uuid.uuid4().hex}" Version="2.0" IssueInstant="{moment(0)}" Destination="{told.acs}"{answers}>'
            f'<saml:Issuer>{told.issuer}</saml:Issuer><samlp:Status><samlp:StatusCode Value="urn:oasis:names:tc:SAML:2.0:status:Success"/>'
            f"</samlp:Status>{more}{assertion}</samlp:Response>"
        )

    def answer(self, told: Told) -> str:
        """As most providers do it: the assertion is signed."""
        return self.response(told, self.sign(self.assertion(told)))


def moment(minutes: int) -> str:
    return (datetime.now(UTC) + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def encode(xml: str | bytes) -> str:
    return base64.b64encode(xml.encode() if isinstance(xml, str) else xml).decode()


def request_id(location: str) -> str:
    """Of the AuthnRequest in the address that the lab leads to."""
    [request] = parse_qs(urlsplit(location).query)["SAMLRequest"]
    return str(etree.fromstring(OneLogin_Saml2_Utils.decode_base64_and_inflate(request)).get("ID"))
