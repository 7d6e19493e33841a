"""A notice as a mail: plain text, with links that begin with the lab's own address."""

from __future__ import annotations

import smtplib
from datetime import timedelta

from django.core.mail import EmailMessage
from django.utils import timezone

from lab.lib.outgoing import RequestOutcome
from lab.teams.accounts.addresses import build_absolute_url, team_path
from lab.watching.alerts.models import Delivery, DeliveryState, Notice
from lab.watching.alerts.notices import one_line

AN_HOUR = 30  # mails to one person, so that a hundred failing runs are not a hundred mails
MESSAGE_ID = "<{}@alerts.policy-lab>"  # the same in every try, so that a mail server that got it twice can tell


def too_many(notice: Notice) -> bool:
    """Whether the person got so many mails lately that this one is left to the inbox, where it then stands whatever the rule says."""
    lately = Delivery.across_teams.filter(notice__user=notice.user, state=DeliveryState.DELIVERED, tried_at__gt=timezone.now() - timedelta(hours=1))
    if lately.count() < AN_HOUR:
        return False
    Notice.objects.same_row(notice).update(inbox=True)
    return True


def send_notice_mail(delivery: Delivery) -> RequestOutcome:
    """Raises nothing about the mail server: what it said last is the outcome's problem, in our words."""
    assert delivery.notice is not None
    try:
        build_notice_mail(delivery, delivery.notice).send()
    except smtplib.SMTPResponseException as error:
        return RequestOutcome(error.smtp_code, f"the mail server responded {error.smtp_code}")
    except (smtplib.SMTPException, OSError) as error:
        return RequestOutcome(None, f"the e-mail could not be sent: {type(error).__name__}")
    return RequestOutcome(None, "")


def build_notice_mail(delivery: Delivery, notice: Notice) -> EmailMessage:
    headers = {"Message-ID": MESSAGE_ID.format(delivery.pk), "Auto-Submitted": "auto-generated"}
    return EmailMessage(
        f"[{one_line(delivery.team.name)}] {one_line(notice.subject)}", format_notice_body(notice), to=[notice.user.email], headers=headers
    )


def format_notice_body(notice: Notice) -> str:
    link = build_absolute_url(notice.url) if notice.url else ""
    reason = f"You get this because of your rule “{notice.rule}”" if notice.rule and notice.rule.owner_id else "You get this as a member of the team"
    where = build_absolute_url(team_path(notice.team, "alerts"))
    return "\n\n".join(part for part in (notice.subject, notice.text, link, f"-- \n{reason}. Notification settings: {where}") if part) + "\n"
