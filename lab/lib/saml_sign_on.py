"""The SAML identity provider that the environment names, in the form django-allauth's settings want."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured
from environ import Env

SLUG = "sso"  # stands in the addresses: /accounts/saml/sso/acs/
WANTED = ("LAB_SAML_METADATA", "LAB_SAML_ENTITY")
FIELDS = ("uid", "email", "email_verified", "first_name", "last_name")
LONGEST_ENTITY = 200  # characters; accounts are stored under it
LOCAL = ("localhost", "127.0.0.1", "::1")
REDIRECT = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect"
# What providers call the fields when LAB_SAML_ATTRIBUTES does not say it: their OIDs, Microsoft's claims, plain words.
USUAL: dict[str, list[str]] = {
    "uid": ["urn:oasis:names:tc:SAML:attribute:subject-id", "urn:oasis:names:tc:SAML:attribute:pairwise-id"],
    "email": ["urn:oid:0.9.2342.19200300.100.1.3", "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/emailaddress", "email", "mail"],
    "email_verified": ["http://schemas.auth0.com/email_verified", "email_verified"],
    "first_name": ["urn:oid:2.5.4.42", "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/givenname", "givenName", "first_name"],
    "last_name": ["urn:oid:2.5.4.4", "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/surname", "sn", "last_name"],
}


def build_saml_providers(env: Env, lab_url: str) -> dict[str, Any]:
    """Empty without LAB_SAML_*. Raises ImproperlyConfigured for what cannot work; a provider at an address is asked when somebody signs in."""
    given = {name: env.str(name, default="") for name in WANTED}
    if not any(given.values()):
        return {}
    if missing := [name for name, value in given.items() if not value]:
        raise ImproperlyConfigured(f"SAML single sign-on needs {', '.join(WANTED)}; not set: {', '.join(missing)}")
    metadata, entity = given["LAB_SAML_METADATA"], given["LAB_SAML_ENTITY"]
    if len(entity) > LONGEST_ENTITY:
        raise ImproperlyConfigured(f"LAB_SAML_ENTITY has more than {LONGEST_ENTITY} characters")
    address, _ = locate_metadata(metadata, entity)
    app = {
        "provider_id": entity,
        "name": env.str("LAB_SAML_NAME", default="single sign-on (SAML)"),
        "client_id": SLUG,
        "settings": {
            "idp": {"entity_id": entity, "metadata_url": address},
            "sp": {"entity_id": env.str("LAB_SAML_ID", default="") or f"{lab_url.rstrip('/')}/accounts/saml/{SLUG}/metadata/"},
            "attribute_mapping": {**USUAL, **read_attribute_names(env.list("LAB_SAML_ATTRIBUTES", default=[]))},
            "verified_domains": read_domains(env.list("LAB_SAML_DOMAINS", default=[])),
            "email_authentication": True,
            # A signature over the response or over the assertion is wanted in any case; what is not in it is not read.
            "advanced": {"strict": True, "reject_deprecated_algorithm": True, "want_attribute_statement": False, "allow_single_label_domains": True},
        },
    }
    return {"saml": {"APPS": [app]}}


def list_saml_origins(env: Env) -> list[str]:
    """Addresses that the sign-in form may lead to: of the provider's sign-in page where a file says it, else of its metadata."""
    metadata, entity = (env.str(name, default="") for name in WANTED)
    return [*([locate_metadata(metadata, entity)[1]] if metadata else []), *env.list("LAB_SAML_ORIGINS", default=[])]


def locate_metadata(metadata: str, entity: str) -> tuple[str, str]:
    """(where the library reads it, an address of the provider). Raises ImproperlyConfigured."""
    parts = urlsplit(metadata)
    if parts.scheme == "https" and parts.hostname:
        return metadata, metadata
    if parts.scheme == "http":
        if parts.hostname in LOCAL:
            return metadata, metadata
        raise ImproperlyConfigured("LAB_SAML_METADATA: fetched without https, the provider's certificate could be anybody's; use https or a file")
    path = Path(metadata).absolute()
    return path.as_uri(), read_sign_in_address(path, entity)


def read_sign_in_address(path: Path, entity: str) -> str:
    """Of the provider in a metadata file. Raises ImproperlyConfigured with what it lacks."""
    from onelogin.saml2.idp_metadata_parser import OneLogin_Saml2_IdPMetadataParser

    try:
        found = OneLogin_Saml2_IdPMetadataParser.parse(path.read_bytes(), entity_id=entity, required_sso_binding=REDIRECT).get("idp", {})
    except OSError as error:
        raise ImproperlyConfigured(f"LAB_SAML_METADATA: {path} cannot be read: {error.strerror}") from None
    except Exception as error:  # whatever a parser of XML finds in a file that is none
        raise ImproperlyConfigured(f"LAB_SAML_METADATA: {path} is not metadata of SAML 2.0: {error}") from None
    if not found:
        raise ImproperlyConfigured(f"LAB_SAML_METADATA: {path} describes no identity provider {entity!r} (LAB_SAML_ENTITY)")
    if "singleSignOnService" not in found:
        raise ImproperlyConfigured(f"LAB_SAML_METADATA: {entity!r} has no sign-in address with the binding HTTP-Redirect")
    if "x509cert" not in found and not found.get("x509certMulti", {}).get("signing"):
        raise ImproperlyConfigured(f"LAB_SAML_METADATA: {entity!r} has no certificate for signatures")
    return str(found["singleSignOnService"]["url"])


def read_attribute_names(pairs: list[str]) -> dict[str, list[str]]:
    """``email=mail,uid=employeeNumber``. Raises ImproperlyConfigured."""
    names: dict[str, list[str]] = {}
    for pair in pairs:
        field, _, name = (part.strip() for part in pair.partition("="))
        if field not in FIELDS or not name:
            raise ImproperlyConfigured(f"LAB_SAML_ATTRIBUTES: {pair!r} is not one of {', '.join(f'{one}=…' for one in FIELDS)}")
        names[field] = [name]
    return names


def read_domains(domains: list[str]) -> list[str]:
    """Domains whose addresses the provider vouches for. Raises ImproperlyConfigured."""
    found = [domain.strip().lower() for domain in domains]
    if wrong := [domain for domain in found if "." not in domain or "@" in domain or "*" in domain or domain.startswith(".")]:
        raise ImproperlyConfigured(f"LAB_SAML_DOMAINS: {wrong[0]!r} is not a domain such as example.org")
    return found
