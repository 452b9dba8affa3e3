/*
 * Wine's ucrtbase has other machine code than Microsoft's, in which Ruby looks for __pioinfo. Here it is found in the data: a pointer
 * to a table whose entries of two descriptors just opened have their handles and are marked as open.
 */

/* Whether all of it may be read. IsBadReadPtr would try, which ends the process where a stack's guard lies. */
static int
is_readable(const char *start, size_t size)
{
    MEMORY_BASIC_INFORMATION region;

    return VirtualQuery(start, &region, sizeof(region)) && region.State == MEM_COMMIT &&
        !(region.Protect & (PAGE_GUARD | PAGE_NOACCESS)) && start + size <= (char *)region.BaseAddress + region.RegionSize;
}

static ioinfo **
find_pioinfo_in_data(void)
{
    char *base = (char *)GetModuleHandle(UCRTBASE);
    IMAGE_NT_HEADERS *headers = (IMAGE_NT_HEADERS *)(base + ((IMAGE_DOS_HEADER *)base)->e_lfanew);
    IMAGE_SECTION_HEADER *section = IMAGE_FIRST_SECTION(headers);
    IMAGE_SECTION_HEADER *end = section + headers->FileHeader.NumberOfSections;
    ioinfo **found = NULL;
    const int fds[2] = {_open("NUL", O_RDONLY), _open("NUL", O_RDONLY)};

    for (; section < end && !found; section++) {
        char **at = (char **)(base + section->VirtualAddress);
        char **limit = (char **)((char *)at + section->Misc.VirtualSize) - 1;
        if (!(section->Characteristics & IMAGE_SCN_MEM_WRITE)) continue;
        for (; at <= limit && !found; at++) {
            size_t extra;
            if (!*at || !is_readable(*at, (fds[1] + 1) * (sizeof(ioinfo) + 64))) continue;
            for (extra = 0; extra <= 64 && !found; extra += sizeof(void *)) {
                int seen = 0, i;
                for (i = 0; i < 2; i++) {
                    ioinfo *entry = (ioinfo *)(*at + fds[i] * (sizeof(ioinfo) + extra));
                    seen += entry->osfhnd == _get_osfhandle(fds[i]) && (entry->osfile & 0x01);
                }
                if (seen == 2) found = (ioinfo **)at;
            }
        }
    }
    _close(fds[0]);
    _close(fds[1]);
    return found;
}
