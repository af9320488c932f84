"""Reports: one page of HTML about run folders."""
