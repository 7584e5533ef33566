"""Lines of a dry run about S3 requests and their cost."""

from __future__ import annotations

from streamvault.common.report import Cost


def cost_fields(cost: Cost | None) -> dict[str, str]:
    """Return the lines about a plan's cost; empty if there is no plan."""
    if cost is None:
        return {}
    about = "about " if cost.objects_estimated else ""
    return {
        "objects": f"{about}{cost.objects:,}",
        "requests": f"{about}{cost.puts:,} PUT or LIST, {about}{cost.gets:,} GET",
        "list price": f"{about}{cost.usd:,.2f} USD for the requests (S3 Standard, us-east-1)"
        if cost.usd >= 0.01
        else "under 0.01 USD for the requests (S3 Standard, us-east-1)",
    }
